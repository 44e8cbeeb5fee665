package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/train/rng"
)

// bytesAsText are the 256 tokens of a byte-level vocabulary: printable bytes stand for themselves, the
// others for the characters from 256 on.
func bytesAsText() (tokens []string) {
	next := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			tokens = append(tokens, string(b))
		} else {
			tokens = append(tokens, string(next))
			next++
		}
	}
	return tokens
}

// tinyGGUF is a file of a Llama in q8_0 with its tokenizer.
func tinyGGUF(t *testing.T) string {
	t.Helper()
	u := func(name string, v uint32) gguftest.Key { return gguftest.Key{Name: "llama." + name, Value: v} }
	tokens := append(bytesAsText(), "<|end|>")
	kinds := make([]int32, len(tokens))
	for i := range kinds {
		kinds[i] = 1
	}
	kinds[256] = 3
	keys := []gguftest.Key{{Name: "general.architecture", Value: "llama"}, u("block_count", 1), u("context_length", 64), u("embedding_length", 32),
		u("feed_forward_length", 64), u("attention.head_count", 4), u("attention.head_count_kv", 2), u("vocab_size", 257),
		{Name: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Name: "tokenizer.ggml.model", Value: "gpt2"}, {Name: "tokenizer.ggml.pre", Value: "gpt-2"}, {Name: "tokenizer.ggml.tokens", Value: tokens},
		{Name: "tokenizer.ggml.token_type", Value: kinds}, {Name: "tokenizer.ggml.merges", Value: []string{}}, {Name: "tokenizer.ggml.eos_token_id", Value: uint32(256)}}
	set, err := kernels.Select("")
	if err != nil {
		t.Fatal(err)
	}
	random := rng.New(4)
	var tensors []gguftest.Tensor
	shapes := map[string][]int{"token_embd": {257, 32}, "output_norm": {32}, "blk.0.attn_norm": {32}, "blk.0.ffn_norm": {32}, "blk.0.attn_q": {32, 32},
		"blk.0.attn_k": {16, 32}, "blk.0.attn_v": {16, 32}, "blk.0.attn_output": {32, 32}, "blk.0.ffn_gate": {64, 32}, "blk.0.ffn_up": {64, 32}, "blk.0.ffn_down": {32, 64}}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape := shapes[name]
		tensor := gguftest.Tensor{Name: name + ".weight", Type: gguf.F32, Shape: shape}
		if len(shape) == 1 {
			for range shape[0] {
				tensor.Data = binary.LittleEndian.AppendUint32(tensor.Data, math.Float32bits(1))
			}
		} else {
			values := make([]float32, shape[0]*shape[1])
			random.Normal(values, 0, 0.3)
			tensor.Type, tensor.Data = gguf.Q8_0, make([]byte, len(values)/32*quant.Q8Bytes)
			set.Quant.PackBlocks(quant.Q8, tensor.Data, values)
		}
		tensors = append(tensors, tensor)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, gguftest.Write(keys, tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRunOnGGUF: an adapter trains on a GGUF file, resumes to the same weights, and nothing else is done
// with the file.
func TestRunOnGGUF(t *testing.T) {
	file, text := tinyGGUF(t), lessons(t, 8)
	train := func(out string, more ...string) (int, string) {
		args := append([]string{"run", "--model", file, "--data", text, "--output", out, "--max-steps", "4", "--save-steps", "2"}, more...)
		status, _, stderr := command(t, args...)
		return status, stderr
	}
	out, again := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
	if status, stderr := train(out, "--lora", "r=2"); status != 0 {
		t.Fatal(stderr)
	}
	if status, stderr := train(again, "--lora", "r=2", "--resume", filepath.Join(out, "checkpoint-2")); status != 0 {
		t.Fatal(stderr)
	}
	last := weightsOf(t, out)
	if !bytes.Equal(weightsOf(t, again), last) || bytes.Equal(weightsOf(t, filepath.Join(out, "checkpoint-2")), last) {
		t.Error("the resumed run ends with other weights, or nothing was learned")
	}
	for want, flags := range map[string][]string{"train an adapter with --lora": nil, "not merged into GGUF files": {"--lora", "r=2", "--merge"}} {
		if status, stderr := train(filepath.Join(t.TempDir(), "out"), flags...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d: %s", flags, status, stderr)
		}
	}
}

// TestAnAdapterOfAGGUFFileIsServed: the engine with the same file answers as the adapter has learned, and
// without the adapter as before.
func TestAnAdapterOfAGGUFFileIsServed(t *testing.T) {
	file, out := tinyGGUF(t), filepath.Join(t.TempDir(), "out")
	text := fileOf(t, "text.jsonl", strings.Repeat("{\"text\": \""+strings.Repeat("abc", 10)+"\"}\n", 4))
	status, _, stderr := command(t, "run", "--model", file, "--data", text, "--output", out, "--lora", "r=8,alpha=32,targets=all-linear", "--batch", "4",
		"--max-steps", "60", "--learning-rate", "1e-2", "--threads", "1", "--save-steps=-1")
	if status != 0 {
		t.Fatal(stderr)
	}
	m, err := dispatch.Open(file, dispatch.Options{Threads: 1, Adapters: []dispatch.Adapter{{Name: "abc", Dir: out}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	answer := func(adapter string) string {
		var b []byte
		for id, err := range m.Generate(t.Context(), []int32{'a', 'b', 'c', 'a'}, dispatch.GenerateOptions{MaxTokens: 8, Adapter: adapter}) {
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, byte(id)) // ids of this tokenizer are bytes
		}
		return string(b)
	}
	if got, without := answer("abc"), answer(""); got != "bcabcabc" || without == got {
		t.Errorf("got %q, without the adapter %q; want bcabcabc with it alone", got, without)
	}
}
