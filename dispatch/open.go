package dispatch

import (
	"io/fs"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Open opens the model at path, which is a folder or anything else that [loader.Open] takes. It
// builds the skeleton from config.json, plans where weights live and binds them. It reads headers
// and no weight. [Model.Plan] returns the plan with its warnings. The caller closes the model.
func Open(path string, o Options) (*Model, error) {
	skeleton, checkpoint, err := loader.OpenModel(path)
	if err != nil {
		return nil, err
	}
	return planAndBind(skeleton, checkpoint, o)
}

// OpenFS is [Open] for a model at the root of files, such as the embedded demo, whose weights are
// already in memory.
func OpenFS(name string, files fs.FS, o Options) (*Model, error) {
	skeleton, checkpoint, err := loader.OpenModelFS(name, files)
	if err != nil {
		return nil, err
	}
	return planAndBind(skeleton, checkpoint, o)
}

// LoadCheckpointAndDispatch is [Open] for an existing skeleton, from [meta.New] or your own
// (Accelerate's load_checkpoint_and_dispatch). It reads headers and no weight.
func LoadCheckpointAndDispatch(skeleton *meta.Model, path string, o Options) (*Model, error) {
	checkpoint, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	return planAndBind(skeleton, checkpoint, o)
}

// planAndBind returns a model that owns its checkpoint.
func planAndBind(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options) (*Model, error) {
	var m *Model
	asked := o.settings()
	checkpoint.KeepHashes(asked.Measurements())
	plan, o, err := Plan(skeleton, o.KnownCoding(skeleton, checkpoint))
	if err == nil {
		m, err = New(skeleton, checkpoint, plan.Map, o)
	}
	if err != nil {
		_ = checkpoint.Close() // the error tells more
		return nil, err
	}
	m.owned = true
	m.tuneOpened()
	return m, nil
}
