package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// AdapterBase is the weights of the model that the adapters below train/lora are of, with
// config.json beside them: as their trace says, else those of the project's own selection.
func AdapterBase(t testing.TB) string {
	t.Helper()
	var trace struct {
		Base string `json:"base_weights"`
	}
	if JSON(t, Path(t, "train", "lora", "trace.json"), &trace) {
		path := Path(t, "train", "lora", filepath.FromSlash(trace.Base))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(Module(t), "testdata", "golden", "train", "models", "llama", "init.safetensors")
}
