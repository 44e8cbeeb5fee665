package compress_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestAutoCodesWhereItIsFaster: weights that fit in memory are coded by --compress auto where that is measured to be
// faster by more than 5 %, those with rows as long as the measured ones, and the plan says by how much.
func TestAutoCodesWhereItIsFaster(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 1024, Inner: 4096, Heads: 8, KV: 2, Dim: 128, Vocab: 300, Layers: 2, DType: meta.BFloat16}
	config, err := meta.ReadConfig([]byte(s.Config()))
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	saved := int64(0) // by the matrices of 4096 columns
	for _, p := range model.Root.AllParams() {
		if len(p.Shape) == 2 && p.Shape[1] == 4096 {
			saved += p.Bytes() - int64(p.Shape[0])*meta.CodedRowBytes(4096)
		}
	}
	for _, c := range []struct {
		gain      float64
		sequences int
		want      meta.QuantFormat
	}{{0, 1, meta.QuantNone}, {1.04, 1, meta.QuantNone}, {1.2, 1, meta.QuantCoded}, {1.2, 2, meta.QuantCoded}, {1.2, 0, meta.QuantCoded}, {1.04, 0, meta.QuantNone}} {
		o := dispatchtest.WithCodedGain(dispatch.Options{Context: 128, MaxSequences: c.sequences, MaxBatchTokens: 16, Compress: dispatch.CompressAuto,
			MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 30}}}, c.gain)
		plan, got, err := dispatch.Plan(model, o)
		if err != nil {
			t.Fatal(err)
		}
		if got.LoadedAs() != c.want || got.CodedGain() != c.gain {
			t.Errorf("%.2f times as fast for %d sequences: loaded as %v with a gain of %v, want %v", c.gain, c.sequences, got.LoadedAs(), got.CodedGain(), c.want)
		}
		coding := dispatch.CodingOf(model, &plan, &got)
		if c.want == meta.QuantCoded && (coding == nil || coding.Gain != c.gain || coding.PlainBytes-coding.Bytes != saved) {
			t.Errorf("%.2f times as fast: got %+v, want %d bytes saved", c.gain, coding, saved)
		}
	}
}

// TestAutoUsesCodesOfAnEarlierStart: weights that stream are read coded where a start with --compress exact has left them
// coded in a file, and the logits are those of plain weights.
func TestAutoUsesCodesOfAnEarlierStart(t *testing.T) {
	s := dispatchtest.CodableShapes[0]
	dir := s.Folder(t, rand.New(rand.NewPCG(1, 23)))
	ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	disk, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: disk, Compress: dispatch.CompressAuto, CacheDir: t.TempDir()}
	loadedAs := func(compress dispatch.Compression) meta.QuantFormat {
		o := o
		o.Compress = compress
		m := dispatchtest.OpenModel(t, dir, o)
		defer m.Close()
		m.Warm(context.Background()) // writes the whole file
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
		dispatchtest.SameLogits(t, compress.String(), dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		return m.LoadedAs()
	}
	for _, c := range []struct {
		compress dispatch.Compression
		want     meta.QuantFormat
	}{{dispatch.CompressAuto, meta.QuantNone}, {dispatch.CompressExact, meta.QuantCoded}, {dispatch.CompressAuto, meta.QuantCoded}} {
		if got := loadedAs(c.compress); got != c.want {
			t.Errorf("%v: loaded as %v, want %v", c.compress, got, c.want)
		}
	}
}
