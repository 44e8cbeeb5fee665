package model

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/modelfiles"
	"github.com/heftai/heft/train/rng"
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

// largeBase writes a model of 82 MB in bfloat16 and returns its folder.
func largeBase(b *testing.B) (dir string) {
	const text = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2000, "torch_dtype": "bfloat16",
		"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 8, "max_position_embeddings": 256}`
	return halfBase(b, text)
}

// halfBase makes a model with random weights in bfloat16.
func halfBase(b testing.TB, text string) (dir string) {
	b.Helper()
	dir = b.TempDir()
	cfg, err := meta.ReadConfig([]byte(text))
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
	random := rng.New(1)
	for _, p := range m.Parameters() {
		random.Normal(p.Data(), 0, 0.05)
	}
	if err := modelfiles.Save(m, dir, modelfiles.Options{DType: meta.BFloat16}); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkBaseBeyondTheLimit trains an adapter on a base of 82 MB in bfloat16, 4 sequences of 256 tokens at
// a time: in the mapping, with blocks recomputed or not, and in a third of its memory.
func BenchmarkBaseBeyondTheLimit(b *testing.B) {
	dir := largeBase(b)
	batch := Batch{Length: 256}
	for i := range 4 * 256 {
		batch.IDs = append(batch.IDs, i*i%2000)
	}
	for _, mode := range []string{"remembered", "recomputed", "third"} {
		b.Run(mode, func(b *testing.B) {
			options := []Option{Freeze(func(string) bool { return true })}
			if mode == "third" {
				options = append(options, MaxMemory(82<<20/3))
			}
			m, err := openFile(b, dir, dir, options...)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			if err := m.AddLoRA(LoRAConfig{R: 8}, rng.New(2)); err != nil {
				b.Fatal(err)
			}
			tp := tensor.NewTape(tensor.Options{})
			for b.Loop() {
				loss, err := m.Loss(tp, batch, Options{Recompute: mode == "recomputed"})
				if err == nil {
					err = tp.Backward(loss, 1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			f := m.FrozenMemory()
			b.ReportMetric(float64(len(batch.IDs)*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(float64(f.Read)/float64(b.N)/(1<<20), "read-MiB/op")
			b.ReportMetric(float64(f.Streamed)/(1<<20), "streamed-MiB")
			b.ReportMetric(float64(f.Resident+f.Staging)/(1<<20), "memory-MiB")
		})
	}
}
