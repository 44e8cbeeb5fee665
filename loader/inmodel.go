package loader

import "github.com/heftai/heft/meta"

// LoadCheckpointInModel opens the checkpoint at path, as [Open] does, and binds it to model, an
// existing skeleton (Accelerate's load_checkpoint_in_model). It only reads headers;
// [Binding.Values] reads a parameter. It returns a [*BindError] if a parameter is missing or
// misshapen. The caller closes [Binding.Checkpoint].
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
