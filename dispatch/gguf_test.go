package dispatch_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/testenv"
)

// TestGGUFModels: files of the gguf package (scripts/make-gguf-models.py), one for each architecture and types in turn, give
// the tokens and the logits that transformers computes from the dequantised weights, in memory and streamed.
func TestGGUFModels(t *testing.T) {
	folder := "testdata/gguf"
	if dir := os.Getenv("HEFT_GGUF_MODELS"); dir != "" {
		folder = dir
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.gguf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".gguf")
		t.Run(name, func(t *testing.T) {
			var cases []struct {
				IDs, Greedy []int32
				Logits      []float32
			}
			text, err := os.ReadFile(strings.TrimSuffix(file, ".gguf") + ".json")
			if err == nil {
				err = json.Unmarshal(text, &cases)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, place := range []string{"cpu", "disk"} {
				policy, err := devicemap.ParsePolicy(place)
				if err != nil {
					t.Fatal(err)
				}
				m, err := dispatch.Open(file, dispatch.Options{DeviceMap: policy, Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128})
				if err != nil {
					t.Fatal(err)
				}
				if u := m.Unexpected(); len(u) > 0 {
					t.Errorf("unexpected tensors %v", u)
				}
				for i, c := range cases {
					got, logits := greedy(t, m, c.IDs, len(c.Greedy))
					if !slices.Equal(got, c.Greedy) {
						t.Errorf("%s, prompt %d: got tokens %v, want %v", place, i, got, c.Greedy)
					}
					worst := 0.0
					for k, want := range c.Logits {
						worst = max(worst, math.Abs(float64(logits[k]-want))/(1+math.Abs(float64(want))))
					}
					if !(worst < 2e-4) {
						t.Errorf("%s, prompt %d: logits are off by %g", place, i, worst)
					}
				}
				m.Close()
			}
		})
	}
}
