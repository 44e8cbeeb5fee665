package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/meta"
)

// llamaKeys describe a tiny model.
func llamaKeys(more ...gguftest.Key) []gguftest.Key {
	u := func(name string, v uint32) gguftest.Key { return gguftest.Key{Name: "llama." + name, Value: v} }
	return append([]gguftest.Key{
		{Name: "general.architecture", Value: "llama"}, u("block_count", 1), u("context_length", 64), u("embedding_length", 32),
		u("feed_forward_length", 32), u("attention.head_count", 2), {Name: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
	}, more...)
}

func floatTensor(name string, shape ...int) gguftest.Tensor {
	return gguftest.Tensor{Name: name, Type: gguf.F32, Shape: shape, Data: make([]byte, 4*meta.Elements(shape))}
}

// writeParts writes tensors as a split file and returns the paths of the parts.
func writeParts(t *testing.T, dir string, parts ...[]gguftest.Tensor) []string {
	t.Helper()
	var paths []string
	for i, tensors := range parts {
		keys := []gguftest.Key{{Name: "split.no", Value: uint32(i)}, {Name: "split.count", Value: uint32(len(parts))}}
		if i == 0 {
			keys = llamaKeys(keys...)
		}
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, len(parts))))
		if err := os.WriteFile(paths[i], gguftest.Write(keys, tensors), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestGGUFPartsAreOneCheckpoint(t *testing.T) {
	dir := t.TempDir()
	blocks := gguftest.Tensor{Name: "blk.0.attn_q.weight", Type: gguf.Q8_0, Shape: []int{32, 32}, Data: make([]byte, 32*34)}
	paths := writeParts(t, dir, []gguftest.Tensor{floatTensor("token_embd.weight", 48, 32)}, []gguftest.Tensor{blocks}, []gguftest.Tensor{floatTensor("output_norm.weight", 32)})
	for _, path := range append(paths, dir) {
		c, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if names := slices.Sorted(c.Names()); !slices.Equal(names, []string{"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"}) {
			t.Errorf("%s: tensors %v", path, names)
		}
		shape, dtype, _ := c.Tensor("model.layers.0.self_attn.q_proj.weight")
		if f := c.Format("model.layers.0.self_attn.q_proj.weight"); f != meta.QuantQ8 || dtype != meta.Uint8 || !slices.Equal(shape, []int{32, 1, 34}) {
			t.Errorf("%s: a tensor of blocks is %v %v in format %v", path, dtype, shape, f)
		}
		if c.Name() != "m" {
			t.Errorf("%s: the model is called %q", path, c.Name())
		}
		config, err := meta.ReadConfigFS(c.FS())
		if err != nil || config.ModelType != "llama" {
			t.Errorf("%s: config %v, %v", path, config, err)
		}
		c.Close()
	}
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(paths[0]); err == nil || !strings.Contains(err.Error(), filepath.Base(paths[1])) {
		t.Errorf("without a part: %v", err)
	}
}

// TestStackedExpertsAreTensors: each slice of a stack is a tensor of its own, at its place in the file.
func TestStackedExpertsAreTensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	tensors := []gguftest.Tensor{floatTensor("token_embd.weight", 48, 32), floatTensor("blk.0.ffn_down_exps.weight", 3, 32, 16)}
	keys := llamaKeys(gguftest.Key{Name: "llama.expert_count", Value: uint32(3)}, gguftest.Key{Name: "llama.expert_used_count", Value: uint32(2)})
	if err := os.WriteFile(path, gguftest.Write(keys, tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, _ := c.Lookup("model.layers.0.block_sparse_moe.experts.0.w2.weight")
	last, ok := c.Lookup("model.layers.0.block_sparse_moe.experts.2.w2.weight")
	if !ok || !slices.Equal(last.Shape, []int{32, 16}) || last.Size != 4*32*16 || last.Offset != first.Offset+2*last.Size {
		t.Errorf("expert 2: %+v, expert 0: %+v", last, first)
	}
}

func TestGGUFsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	embedding := floatTensor("token_embd.weight", 48, 32)
	for name, c := range map[string]struct {
		keys    []gguftest.Key
		tensors []gguftest.Tensor
		want    string
	}{
		"no-architecture.gguf":         {nil, nil, "general.architecture"},
		"other.gguf":                   {[]gguftest.Key{{Name: "general.architecture", Value: "mamba9"}}, nil, "other.gguf: general.architecture: got \"mamba9\", which is not supported; docs/models.md lists the "},
		"no-keys.gguf":                 {[]gguftest.Key{{Name: "general.architecture", Value: "llama"}}, nil, "the key is missing"},
		"no-embedding.gguf":            {llamaKeys(), nil, "token_embd.weight"},
		"type.gguf":                    {llamaKeys(), []gguftest.Tensor{embedding, {Name: "output.weight", Type: gguf.Q8_1, Shape: []int{1, 32}, Data: make([]byte, 36)}}, "Q8_1 has no kernels"},
		"scale.gguf":                   {llamaKeys(), []gguftest.Tensor{embedding, floatTensor("blk.0.attn_q.weight", 32, 32), floatTensor("blk.0.attn_q.scale", 1)}, "blk.0.attn_q.scale: a scale of 0 for weights of F32"},
		"scales.gguf":                  {llamaKeys(), []gguftest.Tensor{embedding, floatTensor("blk.0.attn_q.weight", 32, 32), floatTensor("blk.0.attn_q.scale", 2)}, "blk.0.attn_q.scale: got F32 of shape [2]"},
		"part-00003-of-00002.gguf":     {llamaKeys(), []gguftest.Tensor{embedding}, "part 3 of 2"},
		"whole-00001-of-00001.gguf":    {llamaKeys(gguftest.Key{Name: "split.no", Value: uint32(2)}), []gguftest.Tensor{embedding}, "split.no"},
		"counted.gguf":                 {llamaKeys(gguftest.Key{Name: "split.tensors.count", Value: int32(5)}), []gguftest.Tensor{embedding}, "split.tensors.count"},
		"layers-that-differ.gguf":      {append(llamaKeys()[:4], gguftest.Key{Name: "llama.feed_forward_length", Value: []int32{1, 2}}, gguftest.Key{Name: "llama.attention.head_count", Value: uint32(2)}), []gguftest.Tensor{embedding}, "layers that differ"},
		"text-for-a-number.gguf":       {append(llamaKeys()[:4], gguftest.Key{Name: "llama.attention.head_count", Value: "two"}), []gguftest.Tensor{embedding}, ".gguf: llama.attention.head_count: "},
		"factors-of-another-type.gguf": {llamaKeys(), []gguftest.Tensor{embedding, {Name: "rope_freqs.weight", Type: gguf.F16, Shape: []int{8}, Data: make([]byte, 16)}}, "rope_freqs.weight"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, gguftest.Write(c.keys, c.tensors), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error with %q and the path", name, err, c.want)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "counted.gguf") || !strings.Contains(err.Error(), "type.gguf") {
		t.Errorf("a folder of several: %v", err)
	}
}

// TestScalesBesideGGUFWeightsAreUsedOrRefused: a scale of 1 and scales of activations change nothing. One of NVFP4 is a tensor of the
// model. Others were listed as unexpected, and the model answered without them.
func TestScalesBesideGGUFWeightsAreUsedOrRefused(t *testing.T) {
	one := gguftest.Tensor{Name: "blk.0.attn_q.scale", Type: gguf.F32, Shape: []int{1}, Data: []byte{0, 0, 0x80, 0x3f}}
	four := gguftest.Tensor{Name: "blk.0.attn_k.weight", Type: gguf.NVFP4, Shape: []int{1, 64}, Data: make([]byte, 36)}
	path := filepath.Join(t.TempDir(), "m.gguf")
	tensors := []gguftest.Tensor{floatTensor("token_embd.weight", 48, 32), floatTensor("blk.0.attn_q.weight", 32, 32), one, floatTensor("blk.0.attn_q.input_scale", 1), four, floatTensor("blk.0.attn_k.scale", 1)}
	if err := os.WriteFile(path, gguftest.Write(llamaKeys(), tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const attention = "model.layers.0.self_attn."
	if names := slices.Sorted(c.Names()); !slices.Equal(names, []string{"model.embed_tokens.weight", attention + "k_proj.weight", attention + "k_proj.weight.scale", attention + "q_proj.weight"}) {
		t.Errorf("got tensors %v", names)
	}
}

// TestFilesBesideAGGUFModelAreNotModels: a folder with a projector of images, an importance matrix and a draft of another architecture
// next to the model opens the model. It was an error that listed several models.
func TestFilesBesideAGGUFModelAreNotModels(t *testing.T) {
	dir := t.TempDir()
	kind := func(name string) []gguftest.Key {
		return llamaKeys(gguftest.Key{Name: "general.type", Value: name})
	}
	for name, keys := range map[string][]gguftest.Key{
		"m-Q4_K_M.gguf": kind("model"), "m-mmproj-F16.gguf": kind("mmproj"), "m-imatrix.gguf": {{Name: "general.type", Value: "imatrix"}}, "adapter.gguf": kind("adapter"),
		"draft.gguf": {{Name: "general.architecture", Value: "dflash"}},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), gguftest.Write(keys, []gguftest.Tensor{floatTensor("token_embd.weight", 48, 32)}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "m-Q4_K_M" {
		t.Errorf("got model %q", c.Name())
	}
	c.Close()
	if _, err := Open(filepath.Join(dir, "m-imatrix.gguf")); err == nil || !strings.Contains(err.Error(), `general.type: got "imatrix", want "model"`) {
		t.Errorf("an importance matrix: %v", err)
	}
}

// TestAGGUFModelOfAnotherTypeOpens: general.type is free text, and only the types of companion files are not models.
func TestAGGUFModelOfAnotherTypeOpens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.gguf")
	keys := llamaKeys(gguftest.Key{Name: "general.type", Value: "merge"})
	if err := os.WriteFile(file, gguftest.Write(keys, []gguftest.Tensor{floatTensor("token_embd.weight", 48, 32)}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// The block sizes of ggml's types, with which files are checked, are those of the table of formats.
func TestGGUFTypesHaveTheBlocksOfTheirFormats(t *testing.T) {
	for from, format := range ggufFormats {
		columns, bytes := from.Block()
		if columns != format.BlockColumns() || int64(bytes) != format.BlockBytes() {
			t.Errorf("%v: %d bytes for %d elements, %v has %d for %d", from, bytes, columns, format, format.BlockBytes(), format.BlockColumns())
		}
	}
	for from, dtype := range ggufDTypes {
		if columns, bytes := from.Block(); columns != 1 || int64(bytes) != dtype.Bytes(1) {
			t.Errorf("%v: %d bytes for %d elements, %v has %d for one", from, bytes, columns, dtype, dtype.Bytes(1))
		}
	}
}
