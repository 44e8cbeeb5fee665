package loader

import "github.com/heftai/heft/meta"

// LoadCheckpointInModel opens the checkpoint at path, as [Open] does, and binds it to model, a
// skeleton that exists (Accelerate's load_checkpoint_in_model). It reads headers only;
// [Binding.Values] reads a parameter. A parameter that is missing or misshapen is a [*BindError].
// The caller closes [Binding.Checkpoint].
func LoadCheckpointInModel(model *meta.Model, path string) (*Binding, error) {
	checkpoint, err := Open(path)
	if err != nil {
		return nil, err
	}
	b, err := Bind(checkpoint, model)
	if err != nil {
		_ = checkpoint.Close() // the error tells more
		return nil, err
	}
	return b, nil
}
