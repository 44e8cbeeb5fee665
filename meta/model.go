package meta

// A Model is a skeleton: the module tree of a checkpoint and what the reference
// knows of it as a whole.
type Model struct {
	Config *Config
	Root   *Module
	// NoSplitClasses are the class names that are never split over devices.
	NoSplitClasses []string
	// BasePrefix is the reference's base_model_prefix. A checkpoint may have its
	// tensors with or without it ("transformer.h.0…" and "h.0…").
	BasePrefix string
	// Ignore are patterns of checkpoint tensors that are left out without a
	// warning, with "*" for a run of characters other than ".".
	Ignore []string
	// UnreadBytes is what the published files take beyond the tree, as far as the config tells: the
	// layers of DeepSeek-V3 that predict several tokens ahead. It is 0 with a header.
	UnreadBytes int64
}

// CheckpointHeader is what New asks of a checkpoint: the shape and dtype of a tensor by the
// name that stands in the file. *loader.Checkpoint is one.
type CheckpointHeader interface {
	Tensor(name string) (shape []int, dtype DType, ok bool)
}
