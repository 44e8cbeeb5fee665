package dispatch_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

func open(t testing.TB, dir string) (*meta.Model, *loader.Checkpoint) {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	return skeleton, checkpoint
}

// maps are the five placements: two pure ones, two mixed by block, one by hand that cuts
// through blocks.
func maps(skeleton *meta.Model) map[string]devicemap.Map {
	out := map[string]devicemap.Map{
		"cpu":  devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		"disk": devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}),
	}
	byBlock := func(first devicemap.Device, others ...devicemap.Device) devicemap.Map {
		m := devicemap.NewMap(devicemap.Entry{Device: first})
		spec := skeleton.Root.Spec.(*meta.CausalLMSpec)
		for i, layer := range skeleton.Root.Find(spec.Layers).Children {
			m.Set(spec.Layers+"."+layer.Name, others[i%len(others)])
		}
		return m
	}
	out["alternating"] = byBlock(devicemap.CPU, devicemap.CPU, devicemap.Disk)
	out["head on disk"] = byBlock(devicemap.Disk, devicemap.Disk, devicemap.CPU)
	hand := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
	odd := false
	for path := range skeleton.Root.AllParams() {
		if odd = !odd; odd {
			hand.Set(path, devicemap.Disk)
		}
	}
	out["by hand"] = hand
	out["promoted"] = out["alternating"]
	out["in bands"] = out["disk"]
	return out
}

func TestGoldenModelsUnderFiveMaps(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := open(t, g.Dir)
			var want [][]float32
			for _, name := range []string{"cpu", "disk", "alternating", "head on disk", "by hand", "promoted", "in bands"} {
				o := dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh}
				if name == "in bands" {
					o = dispatchtest.InBands(o, 256)
				}
				model, err := dispatch.New(skeleton, checkpoint, maps(skeleton)[name], o)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if name == "promoted" {
					promote(t, model)
				}
				for i, p := range g.Prompts {
					got, logits := dispatchtest.Greedy(t, model, p.IDs, len(p.Greedy))
					if !slices.Equal(got, p.Greedy) {
						t.Errorf("%s: prompt %d: greedy ids %v, want %v", name, i, got, p.Greedy)
					}
					if name == "cpu" {
						want = append(want, logits)
					} else if at := firstDifference(logits, want[i]); at >= 0 {
						t.Errorf("%s: prompt %d: logit %d is %v; on cpu it is %v", name, i, at, logits[at], want[i][at])
					}
				}
				model.Close()
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (five maps)", cases)
}

// promote waits until the weights of the cpu tier are copied.
func promote(t *testing.T, m *dispatch.Model) {
	t.Helper()
	m.Promote(context.Background())
	for !m.Status().Promoted {
		if err := m.Status().PromoteErr; err != nil {
			t.Fatal(err)
		}
	}
	if held := m.Status().Held["weights"]; held == 0 {
		t.Error("nothing was promoted")
	}
}

func firstDifference(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}
