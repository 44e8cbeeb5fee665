package loader

import (
	"errors"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// fp8Model is a parameter [200, 130] in blocks of 128, alone or as two experts.
func fp8Model(stack int) (*meta.Model, *meta.Param) {
	q := &meta.Quant{Format: meta.QuantFP8, Scales: "w_scale_inv", ScaleDType: meta.BFloat16, Rows: 128, Columns: 128}
	s := meta.TensorSource{Tensor: "w", Quant: q, Stack: stack}
	shape := []int{200, 130}
	if stack > 0 {
		s.Tensor, q.Scales, shape = "e.{}.w", "e.{}.w_scale_inv", []int{stack, 200, 130}
	}
	p := param("w", meta.BFloat16, shape, s)
	return &meta.Model{Root: module("", p)}, p
}

// TestBindQuantised: codes and scales of every expert are found together.
func TestBindQuantised(t *testing.T) {
	model, p := fp8Model(2)
	b, err := Bind(inMemory(t, raw("e.0.w", meta.Float8E4M3, 200, 130), raw("e.0.w_scale_inv", meta.BFloat16, 2, 2),
		raw("e.1.w", meta.Float8E4M3, 200, 130), raw("e.1.w_scale_inv", meta.BFloat16, 2, 2)), model)
	if err != nil {
		t.Fatal(err)
	}
	if extra := b.Unexpected(); extra != nil {
		t.Errorf("unexpected %q", extra)
	}
	parts := b.ExpertTensors(p, 1)
	if len(parts) != 1 || parts[0].Tensor.Name != "e.1.w" || parts[0].Scales.Name != "e.1.w_scale_inv" || parts[0].Zeros != nil || parts[0].Quant == nil {
		t.Errorf("parts of expert 1: %+v", parts)
	}
	if _, _, err := b.Values(p); err == nil || !strings.Contains(err.Error(), "fp8") {
		t.Errorf("values of codes: %v", err)
	}
}

// TestBindQuantisedRefused: a tensor that does not fit is a problem with its name.
func TestBindQuantisedRefused(t *testing.T) {
	codes, scales := raw("w", meta.Float8E4M3, 200, 130), raw("w_scale_inv", meta.BFloat16, 2, 2)
	for _, test := range []struct {
		what    string
		tensors []NamedTensor
		want    string
	}{
		{"scales missing", []NamedTensor{codes}, "w_scale_inv is missing, wanted shape [2 2]"},
		{"codes missing", []NamedTensor{scales}, "w is missing"},
		{"a grid of other blocks", []NamedTensor{codes, raw("w_scale_inv", meta.BFloat16, 1, 2)}, "w_scale_inv has shape [1 2], wanted [2 2]"},
		{"codes of another shape", []NamedTensor{raw("w", meta.Float8E4M3, 130, 200), scales}, "w has shape [130 200], wanted [200 130]"},
		{"codes of another type", []NamedTensor{raw("w", meta.Uint8, 200, 130), scales}, "w holds uint8"},
		{"scales of another type", []NamedTensor{codes, raw("w_scale_inv", meta.Float32, 2, 2)}, "w_scale_inv holds float32"},
	} {
		model, _ := fp8Model(0)
		_, err := Bind(inMemory(t, test.tensors...), model)
		var bad *BindError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.what, err, test.want)
		}
	}
	model, p := fp8Model(0)
	p.Sources[0].Quant.ScaleDType = meta.Int32
	if _, err := Bind(inMemory(t, codes, raw("w_scale_inv", meta.Int32, 2, 2)), model); err == nil {
		t.Error("scales that are integers were taken")
	}
	plain := param("w", meta.BFloat16, []int{200, 130})
	if _, err := Bind(inMemory(t, codes), &meta.Model{Root: module("", plain)}); err == nil || !strings.Contains(err.Error(), "without scales") {
		t.Errorf("codes without scales: %v", err)
	}
}

// TestBindRejectsFactorsOfActivations: tensors of modelopt that multiply activations were listed as unexpected, and answers were wrong.
func TestBindRejectsFactorsOfActivations(t *testing.T) {
	weight := param("w", meta.BFloat16, []int{4, 4}, meta.TensorSource{Tensor: "q.weight"})
	_, err := Bind(inMemory(t, raw("q.weight", meta.BFloat16, 4, 4), raw("q.pre_quant_scale", meta.BFloat16, 4)), &meta.Model{Root: module("", weight)})
	if err == nil || !strings.Contains(err.Error(), "q.pre_quant_scale: changes the products of weights") {
		t.Errorf("got %v", err)
	}
}

// TestBindRejectsDamagedCompanionsOfPublishedFormats: a companion that is missing, has another shape or another
// type is a problem with the tensor's name.
func TestBindRejectsDamagedCompanionsOfPublishedFormats(t *testing.T) {
	packed, scales, global := raw("w_packed", meta.Uint8, 8, 16), raw("w_scale", meta.Float8E4M3, 8, 2), raw("w_global_scale", meta.Float32, 1)
	nvfp4 := meta.Quant{Format: meta.QuantNVFP4, Scales: "w_scale", Global: "w_global_scale", ScaleDType: meta.Float8E4M3, Rows: 1, Columns: 16}
	int4 := meta.Quant{Format: meta.QuantInt4Packed, Scales: "w_scale", Zeros: "w_zero_point", ScaleDType: meta.BFloat16, Rows: 1, Columns: 16}
	int8 := meta.Quant{Format: meta.QuantInt8, Scales: "w_scale", ScaleDType: meta.Float32, Rows: 1, Columns: 32}
	nibbles, groups, zeros := raw("w_packed", meta.Int32, 8, 4), raw("w_scale", meta.BFloat16, 8, 2), raw("w_zero_point", meta.Int32, 1, 2)
	for _, test := range []struct {
		what    string
		codes   string
		quant   meta.Quant
		tensors []NamedTensor
		want    string // "" for none
	}{
		{"nvfp4", "w_packed", nvfp4, []NamedTensor{packed, scales, global}, ""},
		{"nvfp4 with a scalar", "w_packed", nvfp4, []NamedTensor{packed, scales, raw("w_global_scale", meta.Float32)}, ""},
		{"no global scale", "w_packed", nvfp4, []NamedTensor{packed, scales}, "w_global_scale is missing"},
		{"two global scales", "w_packed", nvfp4, []NamedTensor{packed, scales, raw("w_global_scale", meta.Float32, 2)}, "w_global_scale has shape [2]"},
		{"a global scale in halves", "w_packed", nvfp4, []NamedTensor{packed, scales, raw("w_global_scale", meta.Float16, 1)}, "w_global_scale holds float16"},
		{"scales for other groups", "w_packed", nvfp4, []NamedTensor{packed, raw("w_scale", meta.Float8E4M3, 8, 4), global}, "w_scale has shape [8 4]"},
		{"int4", "w_packed", int4, []NamedTensor{nibbles, groups, zeros}, ""},
		{"no zeros", "w_packed", int4, []NamedTensor{nibbles, groups}, "w_zero_point is missing"},
		{"zeros not packed", "w_packed", int4, []NamedTensor{nibbles, groups, raw("w_zero_point", meta.Int32, 8, 2)}, "w_zero_point has shape [8 2]"},
		{"int8 with a vector", "w", int8, []NamedTensor{raw("w", meta.Int8, 8, 32), raw("w_scale", meta.Float32, 8)}, ""},
		{"int8 with too few scales", "w", int8, []NamedTensor{raw("w", meta.Int8, 8, 32), raw("w_scale", meta.Float32, 4)}, "w_scale has shape [4]"},
	} {
		s := meta.TensorSource{Tensor: test.codes, Quant: &test.quant}
		_, err := Bind(inMemory(t, test.tensors...), &meta.Model{Root: module("", param("w", meta.BFloat16, []int{8, 32}, s))})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q in it", test.what, err, test.want)
		}
	}
}
