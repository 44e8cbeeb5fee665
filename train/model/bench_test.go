package model

import (
	"testing"
	"time"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// BenchmarkStep is forward and backward of the 15M llama shape on 8 sequences of 256.
func BenchmarkStep(b *testing.B) {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
		"hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6, "max_position_embeddings": 256,
		"tie_word_embeddings": true}`))
	if err != nil {
		b.Fatal(err)
	}
	skeleton, err := meta.New(cfg, nil)
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(skeleton)
	if err != nil {
		b.Fatal(err)
	}
	k := 0
	for _, p := range m.Parameters() {
		for i := range p.Data() {
			p.Data()[i] = float32(k*2654435761%1000)/5000 - 0.1
			k++
		}
	}
	batch := Batch{Length: 256}
	for i := range 8 * 256 {
		batch.IDs = append(batch.IDs, i*i%32000)
	}
	tp := tensor.NewTape(tensor.Options{})
	var forward time.Duration
	for b.Loop() {
		begin := time.Now()
		loss, err := m.Loss(tp, batch, Options{})
		forward += time.Since(begin)
		if err == nil {
			err = tp.Backward(loss, 1)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(batch.IDs)*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(forward.Seconds()/float64(b.N), "forward-s")
}
