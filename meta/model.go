package meta

// A Model is a skeleton: the module tree of a checkpoint, with the properties of the model as a
// whole.
type Model struct {
	Config *Config
	Root   *Module
	// NoSplitClasses lists the classes of modules that must stay on one device.
	NoSplitClasses []string
	// BasePrefix is base_model_prefix of transformers. Names in a checkpoint may omit it
	// ("transformer.h.0…" and "h.0…").
	BasePrefix string
	// Renames lists alternative prefixes of names in a checkpoint. They belong to the text model
	// of a wrapper, and are empty for other models.
	Renames []Rename
	// Ignore lists patterns of checkpoint tensors that the model does not use, so that they cause
	// no warning. "*" stands for any characters except "." and "**" for any.
	Ignore []string
	// UnreadBytes is the size of published tensors that the tree does not have, such as
	// DeepSeek-V3's layers for multi-token prediction. It is computed from the config; with a
	// header it is 0.
	UnreadBytes int64

	textNames []string // see OtherPart
}

// CheckpointHeader gives New the shape and dtype of a checkpoint's tensors by name.
// *loader.Checkpoint implements it.
type CheckpointHeader interface {
	Tensor(name string) (shape []int, dtype DType, ok bool)
}

// TensorComparer is implemented by a [CheckpointHeader] that can read values. New then ties a head
// to an equal embedding, as transformers does, if the config ties them and the checkpoint has both.
// Without it, New makes two parameters of them.
type TensorComparer interface {
	EqualTensors(a, b string) bool
}
