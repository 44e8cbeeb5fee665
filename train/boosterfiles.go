package train

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
)

// optimizerMark is the file of an optimizer's folder with the number of its parts.
const optimizerMark = "optimizer_index.json"

type optimizerInfo struct {
	Ranks int `json:"ranks"`
}

func shardFile(rank int) string { return fmt.Sprintf("optimizer_rank_%d.safetensors", rank) }

func joined(dir, name string) string { return filepath.Join(dir, name) }

// shardOnly is a sharded optimizer whose state is only that of its own parts.
type shardOnly struct{ *sharded.Optimizer }

func (s shardOnly) State() optim.OptimizerState { return s.ShardState() }

func writeJSON(path string, x any) error {
	b, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(path, append(b, '\n'))
}

func readJSON[T any](path string) (T, error) {
	return checkpoint.ReadJSON[T](&checkpoint.Reading{Dir: filepath.Dir(path)}, filepath.Base(path))
}
