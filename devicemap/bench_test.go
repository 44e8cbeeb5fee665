package devicemap

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// largestTree is the tree of the fixtures with the most names.
func largestTree(b *testing.B) (largest *meta.Module, name string, most int) {
	for _, file := range golden.Glob(b, goldenFolder+"/trees/*.json") {
		data, err := golden.Read(file)
		if err != nil {
			b.Fatal(err)
		}
		root, err := meta.ReadTree(data)
		if err != nil {
			b.Fatal(err)
		}
		t, err := newTable(root, countNothing)
		if err != nil {
			b.Fatal(err)
		}
		if len(t.nodes) > most {
			most, largest, name = len(t.nodes), root, strings.TrimSuffix(filepath.Base(file), ".json")
		}
	}
	testenv.Need(b, "golden", largest != nil, "no trees below the fixtures' root")
	return largest, name, most
}

// BenchmarkSolveLargest plans the largest tree of the fixtures from scratch, table and
// all: with Accelerate's solver on two GPUs, balanced, once with whole blocks and once
// with blocks split; then with budgets, by policy.
func BenchmarkSolveLargest(b *testing.B) {
	largest, name, most := largestTree(b)
	block := ""
	for _, m := range largest.Walk() {
		if strings.HasSuffix(m.Class, "DecoderLayer") {
			block = m.Class
			break
		}
	}
	sizes, err := ComputeModuleSizes(largest, "", nil)
	if err != nil {
		b.Fatal(err)
	}
	total := sizes.Total()
	memory := []DeviceMemory{{Device: GPU(0), Bytes: total / 3}, {Device: GPU(1), Bytes: total / 3}, {Device: CPU, Bytes: total / 4}}
	for _, c := range []struct {
		name    string
		noSplit []string
	}{{"blocks", []string{block}}, {"split", nil}} {
		b.Run(name+"/"+c.name, func(b *testing.B) {
			for b.Loop() {
				o := Options{MaxMemory: memory, NoSplitModuleClasses: c.noSplit, DType: "bfloat16"}
				var err error
				if o.MaxMemory, err = BalancedMemory(largest, o, false); err != nil {
					b.Fatal(err)
				}
				if _, err = InferAutoDeviceMap(largest, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(most), "names")
		})
	}
	model := &meta.Model{Root: largest, NoSplitClasses: []string{block}}
	budgets := []Budget{{Device: GPU(0), Limit: int64(total / 3)}, {Device: CPU, Limit: int64(total / 4), KV: 1 << 30}}
	for _, text := range []string{"auto", "model.layers[3:9]=disk", "balanced", "disk"} {
		b.Run(name+"/"+text, func(b *testing.B) {
			p, err := ParsePolicy(text)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := Solve(model, budgets, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
