package model_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestAlignModuleDeviceReadsWhereverWeightsLive gives the values of a module of the disk tier.
func TestAlignModuleDeviceReadsWhereverWeightsLive(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: devicemap.Policy{Kind: devicemap.Manual,
		Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tensor, _ := m.Checkpoint().Lookup("model.layers.1.mlp.down_proj.weight")
	want, err := tensor.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = m.AlignModuleDevice("model.layers.1.mlp.down_proj", func(params []dispatch.ModuleParam) error {
		for _, p := range params {
			seen++
			if p.Name != "weight" || len(p.Shape) != 2 || binary.LittleEndian.Uint64(p.Bytes) != binary.LittleEndian.Uint64(want) || len(p.Bytes) != len(want) {
				t.Errorf("got %s %v of %d bytes", p.Name, p.Shape, len(p.Bytes))
			}
		}
		return nil
	})
	if err != nil || seen != 1 {
		t.Errorf("%d parameters, %v", seen, err)
	}
	wrong := errors.New("wrong")
	if err := m.AlignModuleDevice("model.norm", func([]dispatch.ModuleParam) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error of f: %v", err)
	}
	if err := m.AlignModuleDevice("model.nose", nil); err == nil {
		t.Error("there is a module model.nose")
	}
}

// TestCPUOffloadWithHookOffloadsThePrevious runs a pipeline of two models, twice.
func TestCPUOffloadWithHookOffloadsThePrevious(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	other, second, err := loader.OpenModel(dispatchtest.DemoFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	a, hookA, err := dispatch.CPUOffloadWithHook(skeleton, checkpoint, dispatch.Options{Context: 32}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, hookB, err := dispatch.CPUOffloadWithHook(other, second, dispatch.Options{Context: 32}, hookA)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	file := checkpoint.Files()[0].Path
	var first []int32
	for range 2 {
		got := dispatchtest.Generate(t, a, []int32{9, 8}, dispatch.GenerateOptions{MaxTokens: 4})
		if first == nil {
			first = got
		}
		const headers = 256 // KiB, of the loader's own mapping
		if n, known := dispatchtest.Mapped(t, file); known && n < 2*headers {
			t.Errorf("only %d KiB of the first model are in memory after its pass", n)
		}
		dispatchtest.Generate(t, b, got, dispatch.GenerateOptions{MaxTokens: 1})
		if n, known := dispatchtest.Mapped(t, file); known && n > headers {
			t.Errorf("%d KiB of the first model are in memory after the second one's pass", n)
		}
		for i := range got {
			if got[i] != first[i] {
				t.Errorf("the first model says %v, then %v", first, got)
			}
		}
	}
	if err := hookB.Offload(); err != nil {
		t.Error(err)
	}
	hookB.Remove()
}

// TestOffloadFreesConvertedWeights: Offload freed mapped weights only; converted ones stayed in memory.
func TestOffloadFreesConvertedWeights(t *testing.T) {
	skeleton, checkpoint, err := loader.OpenModel(dispatchtest.DemoFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	var ledger dispatch.Ledger
	m, hook, err := dispatch.CPUOffloadWithHook(skeleton, checkpoint, dispatch.Options{Context: 32, Quantize: meta.QuantQ8, Ledger: &ledger}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var first []int32
	for range 2 {
		got := dispatchtest.Generate(t, m, []int32{9, 8}, dispatch.GenerateOptions{MaxTokens: 4})
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Errorf("the model says %v, then %v", first, got)
		}
		if ledger.Held()["weights"] == 0 {
			t.Error("no converted weights are in memory after a pass")
		}
		if err := hook.Offload(); err != nil {
			t.Fatal(err)
		}
		if n := ledger.Held()["weights"]; n != 0 {
			t.Errorf("%d bytes of weights are in memory after Offload", n)
		}
		m.SetMemoryLimit(1 << 30) // which does not bring them back
		if n := ledger.Held()["weights"]; n != 0 {
			t.Errorf("%d bytes of weights are in memory after a change of the limit", n)
		}
	}
}
