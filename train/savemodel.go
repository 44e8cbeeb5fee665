package train

import (
	"context"
	"iter"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/modelfiles"
)

// SaveModelOptions say how [SaveModel] writes.
type SaveModelOptions struct {
	// MaxShardSize is the most bytes of tensors in one file; 0 is the reference's 10 GB,
	// less is no limit. A larger tensor gets a file of its own.
	MaxShardSize int64
	// DType is what weights are rounded to: meta.Float32, meta.BFloat16 or meta.Float16;
	// meta.NoDType leaves them as they are.
	DType meta.DType
	// From is the folder of the model that was trained: its config and the files of its
	// tokenizer are copied. Empty copies nothing.
	From string
}

// Checkpointed is a [Module] that knows how its parameters are called and laid out in a
// checkpoint, as a train/model.Model does.
type Checkpointed interface {
	Module
	Checkpoint() (iter.Seq[loader.NamedTensor], error)
}

// SaveModel writes m's weights into dir, which it makes if need be: as
// model.safetensors, or as shards with an index where they are more than MaxShardSize,
// tied ones once. With From the folder is one that loader.Open, serve and transformers
// open. Rank 0 writes; all ranks must call it, and return when it is done.
//
// Each file is written beside its place and brought to disk first.
func SaveModel(ctx context.Context, a *Accelerator, m Module, dir string, o SaveModelOptions) error {
	return wrap("save model", a.together(ctx, a.onMain(func() error {
		return modelfiles.Save(m, dir, modelfiles.Options(o))
	})))
}
