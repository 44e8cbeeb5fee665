package loader

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// inMemory is a checkpoint of the tensors. It is made without Save: any test may use it.
func inMemory(t testing.TB, tensors ...NamedTensor) *Checkpoint {
	t.Helper()
	var b fileBuffer
	if err := writeTensors(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	ck, err := OpenBytes("memory", map[string][]byte{"model.safetensors": b})
	if err != nil {
		t.Fatal(err)
	}
	return ck
}

type fileBuffer []byte

func (b *fileBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func param(name string, dtype meta.DType, shape []int, sources ...meta.TensorSource) *meta.Param {
	return &meta.Param{Name: name, Shape: shape, DType: dtype, Sources: sources}
}

func module(name string, params ...*meta.Param) *meta.Module {
	return &meta.Module{Name: name, Params: params}
}

// names lists the parts as "tensor@expert".
func partNames(parts []BoundTensor) []string {
	var names []string
	for _, p := range parts {
		names = append(names, fmt.Sprintf("%s@%d", p.Tensor.Name, p.Expert))
	}
	return names
}

func TestBindStacks(t *testing.T) {
	const experts, width, in = 3, 2, 4
	var tensors []NamedTensor
	for e := range experts {
		tensors = append(tensors,
			raw(fmt.Sprintf("m.experts.%d.w1", e), meta.BFloat16, width, in),
			raw(fmt.Sprintf("m.experts.%d.w3", e), meta.BFloat16, width, in))
	}
	gateUp := param("gate_up", meta.BFloat16, []int{experts, 2 * width, in},
		meta.TensorSource{Tensor: "m.experts.{}.w1", Stack: experts, Into: meta.RowRange{Begin: 0, End: width}},
		meta.TensorSource{Tensor: "m.experts.{}.w3", Stack: experts, Into: meta.RowRange{Begin: width, End: 2 * width}})
	b, err := Bind(inMemory(t, tensors...), &meta.Model{Root: module("", gateUp)})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"m.experts.0.w1@0", "m.experts.1.w1@1", "m.experts.2.w1@2", "m.experts.0.w3@0", "m.experts.1.w3@1", "m.experts.2.w3@2"}
	if got := partNames(b.Tensors(gateUp)); !slices.Equal(got, want) {
		t.Errorf("parts %q", got)
	}
	if got := partNames(b.ExpertTensors(gateUp, 1)); !slices.Equal(got, []string{"m.experts.1.w1@1", "m.experts.1.w3@1"}) {
		t.Errorf("expert 1: %q", got)
	}
	if b.ExpertTensors(gateUp, 3) != nil || b.ExpertTensors(gateUp, -1) != nil || b.Tensors(&meta.Param{}) != nil {
		t.Error("parts of what is not there")
	}
	if p := b.Tensors(gateUp)[5]; p.Into != (meta.RowRange{Begin: width, End: 2 * width}) {
		t.Errorf("into %v", p.Into)
	}
	if len(b.Unexpected()) != 0 {
		t.Errorf("unexpected: %q", b.Unexpected())
	}
}

func TestBindRowsAndTransposed(t *testing.T) {
	ck := inMemory(t, raw("qkv", meta.Float32, 6, 4), raw("conv", meta.Float32, 4, 6))
	q := param("q", meta.Float32, []int{2, 4}, meta.TensorSource{Tensor: "qkv", From: meta.RowRange{Begin: 2, End: 4}})
	w := param("w", meta.Float32, []int{6, 4}, meta.TensorSource{Tensor: "conv", Transposed: true})
	b, err := Bind(ck, &meta.Model{Root: module("", q, w)})
	if err != nil {
		t.Fatal(err)
	}
	part := b.Tensors(q)[0]
	if off, size := part.Span(); off != 32 || size != 32 {
		t.Errorf("rows lie at %d, %d bytes", off, size)
	}
	whole, _ := part.Tensor.Bytes()
	if rows, err := part.Bytes(); err != nil || !slices.Equal(rows, whole[32:64]) {
		t.Errorf("rows % x, %v", rows, err)
	}
	if p := b.Tensors(w)[0]; !p.Transposed {
		t.Error("the part does not say that it is transposed")
	}
	for _, s := range []meta.TensorSource{
		{Tensor: "qkv", From: meta.RowRange{Begin: 5, End: 7}},
		{Tensor: "qkv", From: meta.RowRange{Begin: 0, End: 3}},
		{Tensor: "conv"},
		{Tensor: "conv", Stack: 3},
		{Tensor: "qkv", Into: meta.RowRange{Begin: 1, End: 3}},
	} {
		if _, err := Bind(ck, &meta.Model{Root: module("", param("p", meta.Float32, []int{2, 4}, s))}); err == nil {
			t.Errorf("%+v was bound", s)
		}
	}
}

// TestBindDialects: the file may have the base prefix or not, whatever the model says.
func TestBindDialects(t *testing.T) {
	const prefix = "transformer"
	for _, modelHas := range []bool{true, false} {
		for _, fileHas := range []bool{true, false} {
			name := func(has bool, n string) string {
				if has {
					return prefix + "." + n
				}
				return n
			}
			ck := inMemory(t,
				raw(name(fileHas, "h.0.w"), meta.Float32, 2),
				raw(name(fileHas, "h.1.w"), meta.Float32, 2),
				raw(name(!fileHas, "h.2.w"), meta.Float32, 2), // one stray
				raw("lm_head.weight", meta.Float32, 2),
				raw(name(fileHas, "h.0.attn.bias"), meta.Bool, 2),
				raw(name(fileHas, "extra"), meta.Bool, 2))
			var params []*meta.Param
			for _, n := range []string{"h.0.w", "h.1.w", "h.2.w"} {
				params = append(params, param(n, meta.Float32, []int{2}, meta.TensorSource{Tensor: name(modelHas, n)}))
			}
			head := param("head", meta.Float32, []int{2}, meta.TensorSource{Tensor: "lm_head.weight"})
			model := &meta.Model{Root: module("", append(params, head)...), BasePrefix: prefix, Ignore: []string{"h.*.attn.bias"}}
			b, err := Bind(ck, model)
			if err != nil {
				t.Errorf("model %t, file %t: %v", modelHas, fileHas, err)
				continue
			}
			if got := b.Unexpected(); !slices.Equal(got, []string{name(fileHas, "extra")}) {
				t.Errorf("model %t, file %t: unexpected %q", modelHas, fileHas, got)
			}
			for _, p := range params {
				if parts := b.Tensors(p); len(parts) != 1 || !strings.HasSuffix(parts[0].Tensor.Name, p.Name) {
					t.Errorf("%s is filled by %q", p.Name, partNames(parts))
				}
			}
		}
	}
}

func TestBindTied(t *testing.T) {
	embed := param("weight", meta.Float32, []int{2, 3}, meta.TensorSource{Tensor: "embed.weight"})
	head := &meta.Param{Name: "weight", Shape: embed.Shape, DType: embed.DType, SameAs: embed}
	root := &meta.Module{Children: []*meta.Module{module("embed", embed), module("lm_head", head)}}
	for _, test := range []struct {
		file []string
		from string // empty where nothing can fill it
	}{
		{[]string{"embed.weight"}, "embed.weight"},
		{[]string{"lm_head.weight"}, "lm_head.weight"},
		{[]string{"embed.weight", "lm_head.weight"}, "embed.weight"},
		{[]string{"other"}, ""},
	} {
		var tensors []NamedTensor
		for _, n := range test.file {
			tensors = append(tensors, raw(n, meta.Float32, 2, 3))
		}
		b, err := Bind(inMemory(t, tensors...), &meta.Model{Root: root})
		if test.from == "" {
			if err == nil {
				t.Errorf("%q: bound", test.file)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.file, err)
			continue
		}
		for _, p := range []*meta.Param{embed, head} {
			if got := b.Tensors(p); len(got) != 1 || got[0].Tensor.Name != test.from {
				t.Errorf("%q: filled by %q", test.file, partNames(got))
			}
		}
		if len(b.Unexpected()) != 0 {
			t.Errorf("%q: unexpected %q", test.file, b.Unexpected())
		}
	}
}

// TestAHeadStoredTwiceIsTiedIfEqual: the config ties the head, and the file has it besides the
// embedding. transformers ties equal ones: their gradients add up, and they count once.
func TestAHeadStoredTwiceIsTiedIfEqual(t *testing.T) {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "llama", "tie_word_embeddings": true, "vocab_size": 700000, "hidden_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what  string
		dtype meta.DType
		at    int // the byte that differs, if it is not negative
		tied  bool
	}{
		{"equal", meta.Float32, -1, true},
		{"first byte", meta.Float32, 0, false},
		{"last byte", meta.Float32, 4*700000 - 1, false},
		{"dtype", meta.Int32, -1, false},
	} {
		embed, head := raw("model.embed_tokens.weight", meta.Float32, 700000, 1), raw("lm_head.weight", test.dtype, 700000, 1)
		values, _ := embed.Bytes()
		values = slices.Clone(values)
		if test.at >= 0 {
			values[test.at]++
		}
		head.Bytes = func() ([]byte, error) { return values, nil }
		m, err := meta.New(cfg, inMemory(t, embed, head))
		if err != nil {
			t.Fatal(err)
		}
		first, second := m.Root.Find("model.embed_tokens").Param("weight"), m.Root.Find("lm_head").Param("weight")
		if tied := second.Resolve() == first; tied != test.tied {
			t.Errorf("%s: tied is %v", test.what, tied)
		}
	}
}

// TestBindOwnTree: a tree without sources is filled by the paths of its parameters and
// persistent buffers; a module that stands twice is filled once.
func TestBindOwnTree(t *testing.T) {
	block := module("block", param("w", meta.Float32, []int{2}))
	block.Buffers = []*meta.Buffer{
		{Name: "mean", Shape: []int{2}, DType: meta.Float32, Persistent: true},
		{Name: "table", Shape: []int{9}, DType: meta.Float32},
	}
	root := &meta.Module{Children: []*meta.Module{block, {Name: "again", SameAs: block}}}
	ck := inMemory(t, raw("block.w", meta.Float32, 2), raw("block.mean", meta.Float32, 2), raw("again.w", meta.Float32, 2))
	b, err := Bind(ck, &meta.Model{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if got := partNames(b.BufferTensors(block.Buffers[0])); !slices.Equal(got, []string{"block.mean@-1"}) || b.BufferTensors(block.Buffers[1]) != nil {
		t.Errorf("buffer: %q", got)
	}
	if len(b.Unexpected()) != 0 {
		t.Errorf("unexpected: %q", b.Unexpected())
	}
}

func TestBindErrorsListEverything(t *testing.T) {
	root := module("")
	for i := range 14 {
		root.Params = append(root.Params, param(fmt.Sprintf("p%02d", i), meta.Float32, []int{2, 3}))
	}
	_, err := Bind(inMemory(t, raw("p00", meta.Float32, 3, 2), raw("p01", meta.Float16, 2, 3), raw("p02", meta.Int64, 2, 3)), &meta.Model{Root: root})
	var e *BindError
	if !errors.As(err, &e) || e.Count != 13 || len(e.Problems) != maxProblems {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"loader: memory: 13 of", "p00 has shape [3 2], wanted [2 3]", "p02 holds int64", "p03 is missing, wanted shape [2 3]", "and 3 more"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	var one *Error
	if !errors.As(err, &one) || one.Tensor != "p00" {
		t.Errorf("the first problem is %v", one)
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.**", "a.b.c", true},
		{"h.*.bias", "h.12.bias", true}, {"h.*.bias", "h.1.2.bias", false}, {"h.**.bias", "h.1.2.bias", true}, {"*", "", true},
		{"*.w", ".w", true}, {"a*c*e", "abcde", true}, {"a*c*e", "abcd", false}, {"**", "a.b", true}, {"", "", true}, {"", "a", false},
	} {
		if got := match(test.pattern, test.name); got != test.want {
			t.Errorf("match(%q, %q) = %t", test.pattern, test.name, got)
		}
	}
}

// manyTensors is a header of n tensors like those of a large mixture.
func manyTensors(n int) []byte {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, `"model.layers.%d.mlp.experts.%d.gate_proj.weight":{"dtype":"BF16","shape":[2,4],"data_offsets":[%d,%d]},`, i/100, i%100, 16*i, 16*i+16)
	}
	text := strings.TrimSuffix(b.String(), ",") + "}"
	for len(text)%8 != 0 {
		text += " "
	}
	file := []byte{byte(len(text)), byte(len(text) >> 8), byte(len(text) >> 16), byte(len(text) >> 24), 0, 0, 0, 0}
	return append(append(file, text...), make([]byte, 16*n)...)
}

func BenchmarkOpen10000Tensors(b *testing.B) {
	path := b.TempDir() + "/model.safetensors"
	if err := os.WriteFile(path, manyTensors(10_000), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ck, err := Open(path)
		if err != nil || ck.Len() != 10_000 {
			b.Fatal(err)
		}
		ck.Close()
	}
}

// BenchmarkBindTrillion binds 61 layers of 384 experts, three tensors each.
func BenchmarkBindTrillion(b *testing.B) {
	const layers, experts = 61, 384
	root, ck := &meta.Module{}, &Checkpoint{index: map[string]int32{}}
	shape := []int{2, 4}
	for l := range layers {
		m := module(fmt.Sprint(l))
		for _, name := range []string{"gate", "up", "down"} {
			pattern := fmt.Sprintf("model.layers.%d.mlp.experts.{}.%s_proj.weight", l, name)
			m.Params = append(m.Params, param(name, meta.BFloat16, []int{experts, 2, 4}, meta.TensorSource{Tensor: pattern, Stack: experts}))
			for e := range experts {
				n := strings.Replace(pattern, "{}", fmt.Sprint(e), 1)
				ck.index[n] = int32(len(ck.tensors))
				ck.tensors = append(ck.tensors, Tensor{Name: n, DType: meta.BFloat16, Shape: shape, Size: 16})
			}
		}
		root.Children = append(root.Children, m)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Bind(ck, &meta.Model{Root: root}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCrossCheckFindsDifferences(t *testing.T) {
	text := []byte(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`)
	for i, change := range []func(*header){
		func(*header) {},
		func(h *header) { h.tensors[0].DType = meta.Int8 },
		func(h *header) { h.tensors[1].Shape = []int{2} },
		func(h *header) { h.tensors[1].Offset++ },
		func(h *header) { h.tensors[0].Name = "c" },
		func(h *header) { h.tensors = h.tensors[:1] },
	} {
		h, err := parseHeader(text, 8, 8+3)
		if err != nil {
			t.Fatal(err)
		}
		h.tensors = slices.Clone(h.tensors)
		change(h)
		if err := agree(h); (err == nil) != (i == 0) {
			t.Errorf("change %d: %v", i, err)
		}
	}
}

// TestLayersOfCosmosThatDrawAreIgnored: published files have them beside those of the text, below the same layers.
func TestLayersOfCosmosThatDrawAreIgnored(t *testing.T) {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "cosmos3_omni", "text_config": {"num_hidden_layers": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"layers.0.self_attn.add_q_proj.weight": true, "layers.0.self_attn.to_add_out.weight": true, "layers.0.self_attn.norm_added_k.weight": true,
		"layers.0.mlp_moe_gen.up_proj.weight": true, "layers.0.input_layernorm_moe_gen.weight": true, "layers.0.self_attn.to_q.weight": false, "layers.0.mlp.up_proj.weight": false,
	} {
		if got := (&Binding{}).ignored(name, m.Ignore); got != want {
			t.Errorf("%s: ignored %v, want %v", name, got, want)
		}
	}
}

// TestFrequenciesInFalconH1AreIgnored: as in other models, old checkpoints may have the rope's frequencies.
func TestFrequenciesInFalconH1AreIgnored(t *testing.T) {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "falcon_h1", "num_hidden_layers": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !(&Binding{}).ignored("model.layers.0.self_attn.rotary_emb.inv_freq", m.Ignore) {
		t.Errorf("frequencies are unexpected; ignored are %q", m.Ignore)
	}
}
