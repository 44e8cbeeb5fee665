package model

import (
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// BenchmarkGemini trains all 41 million weights of a model, a batch of 256 tokens a step: with the 656 MB of
// weights, gradients and moments in memory, and in half and a third of that.
func BenchmarkGemini(b *testing.B) {
	const state = 16 * 41 << 20
	dir := largeBase(b)
	for i, name := range []string{"memory", "whole", "half", "third"} {
		limit := int64(0)
		if i > 0 {
			limit = int64(state / i)
		}
		b.Run(name, func(b *testing.B) { benchmarkGemini(b, dir, limit) })
	}
}

func benchmarkGemini(b *testing.B, dir string, limit int64) {
	var options []Option
	if limit > 0 {
		options = append(options, OffloadParameters(limit, b.TempDir()))
	}
	m, err := openFile(b, dir, dir, options...)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	p := &train.GeminiPlugin{}
	acc, err := train.New(train.Config{Plugin: p})
	if err != nil {
		b.Fatal(err)
	}
	var opt optim.Optimizer
	if opt, err = optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 1e-4}); err == nil {
		err = acc.Prepare(m, &opt)
	}
	if err != nil {
		b.Fatal(err)
	}
	batch := Batch{Length: 256}
	for i := range batch.Length {
		batch.IDs = append(batch.IDs, i*i%2000)
	}
	tp := tensor.NewTape(tensor.Options{})
	step := func() {
		loss, err := m.Loss(tp, batch, Options{Recompute: true})
		if err == nil {
			err = acc.Backward(b.Context(), loss)
		}
		if err == nil {
			err = opt.Step()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for range 3 { // the state begins, and the forecast learns the order
		step()
	}
	before := p.Stats()
	b.ResetTimer()
	for b.Loop() {
		step()
	}
	after := p.Stats()
	per := func(bytes int64) float64 { return float64(bytes) / float64(b.N) / (1 << 20) }
	b.ReportMetric(per(after.Read-before.Read), "read-MiB/op")
	b.ReportMetric(per(after.Written-before.Written), "written-MiB/op")
	b.ReportMetric(per(after.Ahead-before.Ahead), "ahead-MiB/op")
	b.ReportMetric(float64(after.Hit-before.Hit)/float64(max(1, after.Used-before.Used)), "hits")
}
