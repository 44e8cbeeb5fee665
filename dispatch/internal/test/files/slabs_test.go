package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestExpertsOfCodesInSlabs: codes of Step's experts are the same weights in two stacks, as published, and in one, as
// transformers saves them.
func TestExpertsOfCodesInSlabs(t *testing.T) {
	dir := golden.OwnModel(t, "family-step3p5-13").Dir()
	_, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids := []int32{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	var want [][]float32
	for _, together := range []bool{false, true} {
		to := t.TempDir()
		if err := loader.Save(to, slices.Values(withCodes(checkpoint, together)), loader.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		writeFP8Config(t, dir, to)
		for _, device := range []string{"cpu", "disk"} {
			policy, _ := devicemap.ParsePolicy(device)
			m := dispatchtest.OpenModel(t, to, dispatch.Options{DeviceMap: policy, Threads: 1})
			got := dispatchtest.ForcedLogits(t, m, ids, 7, 7)
			if want == nil {
				want = got
			}
			dispatchtest.SameLogits(t, fmt.Sprintf("together %v, on %s", together, device), got, want)
		}
	}
}

// withCodes returns the tensors of a checkpoint of Step with FP8 codes of its experts, which are made up: gates and ups
// apart, or together.
func withCodes(checkpoint *loader.Checkpoint, together bool) (list []loader.NamedTensor) {
	add := func(name string, dtype meta.DType, data []byte, shape ...int) {
		list = append(list, loader.NamedTensor{Name: name, DType: dtype, Shape: shape, Bytes: func() ([]byte, error) { return data, nil }})
	}
	for x := range checkpoint.Tensors() {
		at, gate := strings.CutSuffix(x.Name, ".moe.gate_proj.weight")
		switch {
		case strings.HasSuffix(x.Name, ".moe.up_proj.weight"):
		case !gate:
			list = append(list, x.Named())
		default:
			experts, inner, hidden := x.Shape[0], x.Shape[1], x.Shape[2]
			gates, ups, both, scales := madeUpCodes(experts, inner*hidden)
			if name := at + ".mlp.experts.gate_up_proj"; together {
				add(name, meta.Float8E4M3, both, experts, 2*inner, hidden)
				add(name+"_scale_inv", meta.Float32, scales, experts, 1, 1)
				continue
			}
			for name, codes := range map[string][]byte{at + ".moe.gate_proj.weight": gates, at + ".moe.up_proj.weight": ups} {
				add(name, meta.Float8E4M3, codes, experts, inner, hidden)
				add(name+"_scale_inv", meta.Float32, scales, experts, 1, 1)
			}
		}
	}
	return list
}

// madeUpCodes returns codes of two matrices of each expert, apart and one behind the other, and a scale of each expert.
func madeUpCodes(experts, size int) (gates, ups, both, scales []byte) {
	for e := range experts {
		for k, part := range []*[]byte{&gates, &ups} {
			matrix := make([]byte, size)
			for i := range matrix {
				matrix[i] = byte((i*7+e*31+k*13)%64) | byte(i%2)<<7 // up to 1.875
			}
			*part = append(*part, matrix...)
			both = append(both, matrix...)
		}
		scales = append(scales, 0, 0, byte(e%2)<<7, 0x3e) // 0.125 or 0.25
	}
	return gates, ups, both, scales
}

// writeFP8Config writes the config of a model in a folder to another one, for weights in FP8.
func writeFP8Config(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}
	if data, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), data, 0o666); err != nil {
		t.Fatal(err)
	}
}
