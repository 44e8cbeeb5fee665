package train

import (
	"context"
	"errors"
	"iter"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/modelfiles"
)

// SaveModelOptions configure [SaveModel].
type SaveModelOptions struct {
	// MaxShardSize is the maximum of tensor bytes per file. 0 means 10 GB, Accelerate's default; a
	// negative number means no limit. A larger tensor gets a file of its own.
	MaxShardSize int64
	// DType is the dtype to round weights to: meta.Float32, meta.BFloat16 or meta.Float16.
	// meta.NoDType does not round.
	DType meta.DType
	// From is the folder of the model that was trained. Its config and the files of its tokenizer
	// are copied. Empty copies nothing.
	From string
}

// Checkpointed is a [Module] that knows the names and the layout of its parameters in a checkpoint,
// such as a train/model.Model.
type Checkpointed interface {
	Module
	Checkpoint() (iter.Seq[loader.NamedTensor], error)
}

// SaveModel writes m's weights into dir, which it creates: as model.safetensors, or as shards with
// an index if they exceed MaxShardSize. Tied weights are written once. With From, loader.Open,
// serve and transformers can open the folder. Rank 0 writes. All ranks must call SaveModel; it
// returns on all of them when the files are written.
//
// Each file replaces its predecessor atomically.
func SaveModel(ctx context.Context, a *Accelerator, m Module, dir string, o SaveModelOptions) error {
	if m == nil {
		return errors.New("train: save model: got a nil module")
	}
	err := checkpoint.Gathered(m, func() error {
		return a.rank.OnMain(func() error { return modelfiles.Save(m, dir, modelfiles.Options(o)) })
	})
	return wrap("save model", a.rank.Together(ctx, err))
}
