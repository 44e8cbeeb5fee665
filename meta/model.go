package meta

// A Model is a skeleton: the module tree of a checkpoint, with what the config says of it as a
// whole.
type Model struct {
	Config *Config
	Root   *Module
	// NoSplitClasses lists the classes of modules that are not split over devices.
	NoSplitClasses []string
	// BasePrefix is base_model_prefix of transformers. Names in a checkpoint may have or lack it
	// ("transformer.h.0…" and "h.0…").
	BasePrefix string
	// Renames lists other beginnings of names in a checkpoint. They are those of the text model of a
	// wrapper, and empty for other models.
	Renames []Rename
	// Ignore lists patterns of checkpoint tensors that the model does not use, so that they cause
	// no warning. "*" stands for any characters except "." and "**" for any.
	Ignore []string
	// UnreadBytes is the size of tensors in the published files that the tree does not have, such
	// as the layers of DeepSeek-V3 that predict further tokens. It is known from the config; with a
	// header it is 0.
	UnreadBytes int64

	textNames []string // see OtherPart
}

// CheckpointHeader gives New the shape and dtype of a checkpoint's tensors by name.
// *loader.Checkpoint implements it.
type CheckpointHeader interface {
	Tensor(name string) (shape []int, dtype DType, ok bool)
}
