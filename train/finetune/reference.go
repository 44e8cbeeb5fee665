package finetune

import (
	"errors"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// perToken keeps the loss of each token separate.
var perToken = tensor.CrossEntropyOptions{Reduction: tensor.None}

// openReference returns the model at the beginning of the run. For an adapter it is the same model,
// with passes that skip the adapter. For a full fine-tune it opens the checkpoint again,
// memory-mapped.
func (s *student) openReference() (*model.Model, error) {
	if s.LoRA != "" {
		return s.model, nil
	}
	config, err := readConfig(s.job.model)
	if err != nil {
		return nil, err
	}
	checkpoint, err := loader.Open(s.job.model)
	if err != nil {
		return nil, err
	}
	m, err := s.mapped(config, checkpoint)
	if err != nil {
		return nil, errors.Join(err, checkpoint.Close())
	}
	s.closers = append(s.closers, func() error { return errors.Join(m.Close(), checkpoint.Close()) })
	return m, nil
}

// mapped returns a model whose weights stay in the checkpoint.
func (s *student) mapped(config *meta.Config, checkpoint *loader.Checkpoint) (*model.Model, error) {
	skeleton, err := meta.New(config, checkpoint)
	if err != nil {
		return nil, err
	}
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		return nil, err
	}
	return model.Load(skeleton, binding, model.Freeze(func(string) bool { return true }))
}

// leavesRouters warns that the method omits the routers' loss, if the model has one.
func (s *student) leavesRouters(subject string) {
	if s.router != 0 && s.acc.IsMainProcess() {
		s.log.Warn("the routers' loss of this model is left out: " + subject + " learned without it")
	}
}

// switched is a model for a Trainer that tells its student whether losses are for training.
type switched struct {
	*model.Model
	s *student
}

func (m *switched) SetTraining(on bool) { m.s.evaluating = !on }
