package meta

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/smallfile"
)

// shapedHeader is a checkpoint's tensors with their shapes.
type shapedHeader map[string]StoredTensor

func (h shapedHeader) Tensor(name string) ([]int, DType, bool) {
	t, ok := h[name]
	return t.Shape, t.DType, ok
}

func (h shapedHeader) add(name string, d DType, shape ...int) shapedHeader {
	h[name] = StoredTensor{Shape: shape, DType: d}
	return h
}

const (
	smallLlama   = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 168, "num_hidden_layers": 1, "num_attention_heads": 4, "torch_dtype": "bfloat16"}`
	smallMixtral = `{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": 3, "num_experts_per_tok": 2, "torch_dtype": "bfloat16"}`
	smallGPTOSS  = `{"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "torch_dtype": "bfloat16"}`
	smallGPT2    = `{"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 80}`
)

// TestQuantisedSources: the tensors tell how a parameter is stored, one by one.
func TestQuantisedSources(t *testing.T) {
	for _, test := range quantisedCases() {
		t.Run(test.name, test.run)
	}
}

// A quantisedCase is a config, the headers of one weight, and what meta makes of them.
type quantisedCase struct {
	name, config string
	quantisation string
	header       shapedHeader
	param        string
	want         []TensorSource
	dtype        DType
	bytes        int64
}

func (test quantisedCase) run(t *testing.T) {
	config := strings.TrimSuffix(test.config, "}") + `, "quantization_config": ` + test.quantisation + "}"
	cfg, err := ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, test.header)
	if err != nil {
		t.Fatal(err)
	}
	for path, p := range m.Root.AllParams() {
		if path != test.param {
			continue
		}
		if !reflect.DeepEqual(p.Sources, test.want) {
			t.Errorf("sources %+v, %+v\nwant %+v, %+v", p.Sources, p.Sources[0].Quant, test.want, test.want[0].Quant)
		}
		if p.DType != test.dtype || p.Bytes() != test.bytes {
			t.Errorf("%v of %d bytes, want %v of %d", p.DType, p.Bytes(), test.dtype, test.bytes)
		}
		return
	}
	t.Fatalf("no parameter %s", test.param)
}

func quantisedCases() []quantisedCase {
	const gate, experts = "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.experts"
	nibbles := func(base string) shapedHeader {
		return shapedHeader{}.add(base+".qzeros", Int32, 2, 21).add(base+".scales", Float16, 2, 168)
	}
	return []quantisedCase{
		{"fp8", smallLlama, `{"quant_method": "fp8"}`,
			shapedHeader{}.add(gate+".weight", Float8E4M3, 168, 64).add(gate+".weight_scale_inv", Float32, 1, 1), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".weight", Quant: &Quant{Format: QuantFP8, Scales: gate + ".weight_scale_inv", ScaleDType: Float32, Rows: AllRows, Columns: 64}}},
			BFloat16, 168*64 + 4},
		{"fp8 in blocks, without the prefix", smallLlama, `{"quant_method": "fp8", "weight_block_size": [128, 32]}`,
			shapedHeader{}.add(gate[6:]+".weight", Float8E4M3, 168, 64).add(gate[6:]+".weight_scale_inv", BFloat16, 2, 2), gate + ".weight",
			[]TensorSource{{Tensor: gate[6:] + ".weight", Quant: &Quant{Format: QuantFP8, Scales: gate[6:] + ".weight_scale_inv", ScaleDType: BFloat16, Rows: 128, Columns: 32}}},
			BFloat16, 168*64 + 8},
		{"fp8 with scales instead of weights, of powers of two", smallLlama, `{"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 32]}`,
			shapedHeader{}.add(gate[6:]+".weight", Float8E4M3, 168, 64).add(gate[6:]+".scale", Float8E8M0, 2, 2), gate + ".weight",
			[]TensorSource{{Tensor: gate[6:] + ".weight", Quant: &Quant{Format: QuantFP8Powers, Scales: gate[6:] + ".scale", ScaleDType: Float8E8M0, Rows: 128, Columns: 32}}},
			BFloat16, 168*64 + 4},
		{"fp4 in bytes under the weight's name", smallLlama, `{"quant_method": "fp8", "scale_fmt": "ue8m0", "expert_dtype": "fp4"}`,
			shapedHeader{}.add(gate+".weight", Int8, 168, 32).add(gate+".scale", Float8E8M0, 168, 2), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".weight", Quant: &Quant{Format: QuantMXFP4Packed, Scales: gate + ".scale", ScaleDType: Float8E8M0, Rows: 1, Columns: 32}}},
			BFloat16, 168*32 + 168*2},
		{"bytes without scales", smallLlama, `{"quant_method": "fp8", "expert_dtype": "fp4"}`,
			shapedHeader{}.add(gate+".weight", Int8, 168, 32), gate + ".weight", []TensorSource{{Tensor: gate + ".weight"}}, Int8, 168 * 64},
		{"not converted", smallLlama, `{"quant_method": "fp8"}`,
			shapedHeader{}.add(gate+".weight", BFloat16, 168, 64), gate + ".weight", []TensorSource{{Tensor: gate + ".weight"}}, BFloat16, 2 * 168 * 64},
		{"gptq", smallLlama, `{"quant_method": "gptq", "bits": 4}`,
			nibbles(gate).add(gate+".qweight", Int32, 8, 168).add(gate+".g_idx", Int32, 64), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".qweight", Transposed: true, Quant: &Quant{Format: QuantGPTQ, Scales: gate + ".scales", Zeros: gate + ".qzeros", Index: gate + ".g_idx", ScaleDType: Float16, Rows: 32, Columns: 1, ZeroWords: ones4}}},
			BFloat16, 168*64/2 + 2*168*2 + 2*168/2 + 4*64},
		{"gptq of the second version", smallLlama, `{"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}`,
			nibbles(gate).add(gate+".qweight", Int32, 8, 168), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".qweight", Transposed: true, Quant: &Quant{Format: QuantGPTQ, Scales: gate + ".scales", Zeros: gate + ".qzeros", ScaleDType: Float16, Rows: 32, Columns: 1}}},
			BFloat16, 168*64/2 + 2*168*2 + 2*168/2},
		{"awq", smallLlama, `{"quant_method": "awq", "bits": 4}`,
			nibbles(gate).add(gate+".qweight", Int32, 64, 21), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".qweight", Transposed: true, Quant: &Quant{Format: QuantAWQ, Scales: gate + ".scales", Zeros: gate + ".qzeros", ScaleDType: Float16, Rows: 32, Columns: 1}}},
			BFloat16, 168*64/2 + 2*168*2 + 2*168/2},
		{"gptq with a partial group", smallLlama, `{"quant_method": "gptq", "bits": 4, "group_size": 48}`,
			nibbles(gate).add(gate+".qweight", Int32, 8, 168), gate + ".weight",
			[]TensorSource{{Tensor: gate + ".qweight", Transposed: true, Quant: &Quant{Format: QuantGPTQ, Scales: gate + ".scales", Zeros: gate + ".qzeros", ScaleDType: Float16, Rows: 48, Columns: 1, ZeroWords: ones4}}},
			BFloat16, 168*64/2 + 2*168*2 + 2*168/2},
		{"gptq of a weight that is [inputs, outputs]", smallGPT2, `{"quant_method": "gptq", "bits": 4}`,
			shapedHeader{}.add("h.0.mlp.c_fc.qweight", Int32, 8, 256).add("h.0.mlp.c_fc.scales", Float16, 1, 256).add("h.0.mlp.c_fc.qzeros", Int32, 1, 32), "transformer.h.0.mlp.c_fc.weight",
			[]TensorSource{{Tensor: "h.0.mlp.c_fc.qweight", Quant: &Quant{Format: QuantGPTQ, Scales: "h.0.mlp.c_fc.scales", Zeros: "h.0.mlp.c_fc.qzeros", ScaleDType: Float16, Rows: 64, Columns: 1, ZeroWords: ones4}}},
			Float32, 64*256/2 + 2*256 + 256/2},
		{"experts in fp8", smallMixtral, `{"quant_method": "fp8", "weight_block_size": [128, 128]}`,
			shapedHeader{}.add(experts+".0.w2.weight", Float8E4M3, 64, 96).add(experts+".0.w2.weight_scale_inv", Float32, 1, 1), experts + ".down_proj",
			[]TensorSource{{Tensor: experts + ".{}.w2.weight", Stack: 3, Quant: &Quant{Format: QuantFP8, Scales: experts + ".{}.w2.weight_scale_inv", ScaleDType: Float32, Rows: 128, Columns: 128}}},
			BFloat16, 3 * (64*96 + 4)},
		{"mxfp4, square", smallGPTOSS, `{"quant_method": "mxfp4"}`,
			shapedHeader{}.add(experts+".down_proj_blocks", Uint8, 3, 64, 2, 16).add(experts+".down_proj_scales", Uint8, 3, 64, 2), experts + ".down_proj",
			[]TensorSource{{Tensor: experts + ".down_proj_blocks", Transposed: true, Quant: &Quant{Format: QuantMXFP4, Scales: experts + ".down_proj_scales", ScaleDType: Uint8, Rows: 1, Columns: 32}}},
			BFloat16, 3 * 64 * (32 + 2)},
	}
}

// TestBlocksOfEarlyCompressedTensorsWereRefused: they write the size of blocks as text.
func TestBlocksOfEarlyCompressedTensorsWereRefused(t *testing.T) {
	for structure, ok := range map[string]bool{`"16x24"`: true, `[16, 24]`: true, `"16"`: false, `"16x"`: false, `"x24"`: false, `"16x24x8"`: false, `"-16x24"`: false} {
		config, err := ReadConfig([]byte(strings.TrimSuffix(smallLlama, "}") + `, "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
			"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": ` + structure + `}}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(config, nil)
		if (err == nil) != ok {
			t.Errorf("%s: got error %v", structure, err)
		}
		if err != nil {
			continue
		}
		for path, p := range m.Root.AllParams() {
			if q := p.Sources[0].Quant; strings.HasSuffix(path, "mlp.gate_proj.weight") && (q == nil || q.Rows != 16 || q.Columns != 24) {
				t.Errorf("%s: %s is %+v, want blocks of 16 × 24", structure, path, q)
			}
		}
	}
}

// TestStoredIsWhatMatrixInverts: shapes of codes lead back to the matrix.
func TestStoredIsWhatMatrixInverts(t *testing.T) {
	for _, q := range []Quant{
		{Format: QuantFP8, Rows: 128, Columns: 128},
		{Format: QuantMXFP4, Rows: 1, Columns: 32},
		{Format: QuantGPTQ, Rows: 32, Columns: 1, Index: "i"},
		{Format: QuantAWQ, Rows: 32, Columns: 1},
		{Format: QuantGPTQ2, Rows: 32, Columns: 1},
		{Format: QuantGPTQ3, Rows: 32, Columns: 1, Index: "i"},
	} {
		for _, shape := range [][]int{{64, 96}, {3, 160, 32}} {
			s := TensorSource{Tensor: "t", Quant: &q}
			stored, reason := s.Stored(shape)
			if reason != "" {
				t.Fatalf("%v: %s", q.Format, reason)
			}
			if got := q.Matrix(stored[0].Shape); !reflect.DeepEqual(got, shape) {
				t.Errorf("%v: codes %v are of %v, want %v", q.Format, stored[0].Shape, got, shape)
			}
		}
		odd := TensorSource{Tensor: "t", Quant: &q}
		if _, reason := odd.Stored([]int{63, 97}); (reason == "") != (q.Format == QuantFP8) {
			t.Errorf("%v of an odd shape: %q", q.Format, reason)
		}
		odd.From = RowRange{0, 32}
		if _, reason := odd.Stored([]int{64, 96}); reason == "" {
			t.Errorf("%v: rows of codes were taken", q.Format)
		}
	}
}

// TestZerosOfThreeBitsDependOnTheirWriter: GPTQModel subtracts other numbers from words of zeros than AutoGPTQ, which
// subtracts 1 from each; the second version of the format subtracts nothing.
func TestZerosOfThreeBitsDependOnTheirWriter(t *testing.T) {
	const gate = "model.layers.0.mlp.gate_proj"
	header := shapedHeader{}.add(gate+".qweight", Int32, 6, 192).add(gate+".qzeros", Int32, 2, 18).add(gate+".scales", Float16, 2, 192)
	for _, test := range []struct {
		more string
		want [3]uint32
	}{
		{``, [3]uint32{0x49249249, 0x92492492, 0x24924924}},
		{`, "meta": {"quantizer": "autogptq:0.7.1"}`, [3]uint32{0x49249249, 0x92492492, 0x24924924}},
		{`, "meta": {"quantizer": "gptqmodel:1.0.0"}`, [3]uint32{0x24924924, 0x92492492, 0x49249249}},
		{`, "meta": {"quantizer": ["gptqmodel:1.0.0"]}`, [3]uint32{0x24924924, 0x92492492, 0x49249249}},
		{`, "meta": {"quantizer": ["gptqmodel:1.0.0"]}, "checkpoint_format": "gptq_v2"`, [3]uint32{}},
	} {
		text := strings.Replace(smallLlama, `"intermediate_size": 168`, `"intermediate_size": 192`, 1)
		config, err := ReadConfig([]byte(strings.TrimSuffix(strings.TrimSpace(text), "}") + `, "quantization_config": {"quant_method": "gptq", "bits": 3` + test.more + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(config, header)
		if err != nil {
			t.Fatal(err)
		}
		for path, p := range m.Root.AllParams() {
			if path != gate+".weight" {
				continue
			}
			if q := p.Sources[0].Quant; q == nil || q.ZeroWords != test.want {
				t.Errorf("%s: got %+v, want zero words %#x", test.more, q, test.want)
			}
		}
	}
}

// TestQuantisationRefused: a format without a kernel is an error that names the field.
func TestQuantisationRefused(t *testing.T) {
	for _, test := range []struct{ quantisation, field string }{
		{`5`, "quantization_config"},
		{`{"quant_method": "eetq"}`, "quantization_config.quant_method"},
		{`{"quant_method": "compressed-tensors", "config_groups": {}}`, "quantization_config.config_groups"},
		{`{"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}}}`, "quantization_config.config_groups.a.weights"},
		{`{"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}`, "quantization_config.sparsity_config"},
		{`{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}`, "quantization_config.quant_algo"},
		{`{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A8_AWQ"}}}`, "quantization_config.quant_algo"},
		{`{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {}}}}`, "quantization_config.quant_algo"},
		{`{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"weights": {"num_bits": 2, "type": "int"}}}}`, "quantization_config.config_groups.a.weights"},
		{`{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}`, "quantization_config.checkpoint_format"},
		{`{"quant_method": "awq", "bits": 4, "format": "gemv_fast"}`, "quantization_config.format"},
		{`{"quant_method": "bitsandbytes"}`, "quantization_config.load_in_8bit"},
		{`{"bits": 4}`, "quantization_config.quant_method"},
		{`{"quant_method": "fp8", "fmt": "e5m2"}`, "quantization_config.fmt"},
		{`{"quant_method": "fp8", "weight_block_size": [128]}`, "quantization_config.weight_block_size"},
		{`{"quant_method": "fp8", "weight_block_size": [128, 0]}`, "quantization_config.weight_block_size"},
		{`{"quant_method": "fp8", "weight_block_size": [128, "a"]}`, "quantization_config.weight_block_size"},
		{`{"quant_method": "gptq", "bits": 5}`, "quantization_config.bits"},
		{`{"quant_method": "gptq", "bits": "four"}`, "quantization_config.bits"},
		{`{"quant_method": "awq", "bits": {"a": 4}}`, "quantization_config.bits"},
		{`{"quant_method": "gptq", "bits": 4, "group_size": 0}`, "quantization_config.group_size"},
		{`{"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:exllama"}`, "quantization_config.packing_format"},
		{`{"quant_method": "awq", "bits": 4, "version": "gemv"}`, "quantization_config.version"},
	} {
		config, err := ReadConfig([]byte(strings.TrimSuffix(smallLlama, "}") + `, "quantization_config": ` + test.quantisation + "}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(config, nil)
		var bad *ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v", test.quantisation, err)
		}
	}
}

// TestRotationsOfActivationsAreRefused: transform_config was not read, so a model answered without the rotations that its weights assume.
// Rotations of weights alone are within the weights.
func TestRotationsOfActivationsAreRefused(t *testing.T) {
	config := func(location string) *Config {
		c, err := ReadConfig([]byte(strings.TrimSuffix(smallLlama, "}") + `, "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
			"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}},
			"transform_config": {"config_groups": {"R4": {"type": "hadamard", "apply": [{"targets": ["re:.*down_proj$"], "location": "weight_input", "inverse": true},
			{"targets": ["re:.*down_proj$"], "location": "` + location + `"}]}}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := New(config("input"), nil); err == nil || !strings.Contains(err.Error(), `quantization_config.transform_config: "R4" transforms "input"`) {
		t.Errorf("of activations: %v", err)
	}
	if _, err := New(config("weight_output"), nil); err != nil {
		t.Errorf("of weights: %v", err)
	}
}

// TestUnsupportedFormatsSayWhatToTake: the error of a published format that has no reader names the
// format and what to take instead, as does that of MLX, whose configs have no quant_method.
func TestUnsupportedFormatsSayWhatToTake(t *testing.T) {
	const mlx = `{"group_size": 64, "bits": 4}`
	method := func(name string) string { return `"quantization_config": {"quant_method": "` + name + `"}` }
	for _, test := range []struct{ fields, want string }{
		{method("hqq"), `quantization_config.quant_method: "hqq"`},
		{method("torchao"), `quantization_config.quant_method: "torchao"`},
		{method("exl2"), `quantization_config.quant_method: "exl2"`},
		{method("exl3"), `quantization_config.quant_method: "exl3"`},
		{`"quantization_config": {"quant_method": "gptq", "bits": 5}`, "quantization_config.bits: 5"},
		{`"quantization": ` + mlx, "quantization: weights quantised by MLX"},
		{`"quantization": ` + mlx + `, "quantization_config": ` + mlx, "quantization: weights quantised by MLX"},
	} {
		config, err := ReadConfig([]byte(strings.TrimSuffix(smallLlama, "}") + ", " + test.fields + "}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(config, nil)
		var bad *ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "bfloat16 folder with --quantize q4_0") {
			t.Errorf("%s: %v", test.fields, err)
		}
	}
	for _, fields := range []string{`"quantization": null`, `"quantization": {}`, `"quantization": "none"`} {
		config, err := ReadConfig([]byte(strings.TrimSuffix(smallLlama, "}") + ", " + fields + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(config, nil); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// modelOptFS has smallLlama's config.json and a hf_quant_config.json.
func modelOptFS(config, quant string) fstest.MapFS {
	return fstest.MapFS{"config.json": {Data: []byte(config)}, QuantConfigName: {Data: []byte(quant)}}
}

func smallLlamaWith(fields string) string { return strings.TrimSuffix(smallLlama, "}") + fields + "}" }

// TestModelOptsOwnFileWasIgnored: hf_quant_config.json says what quantization_config of modelopt does.
func TestModelOptsOwnFileWasIgnored(t *testing.T) {
	for _, settings := range []string{
		`"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "*layers.1.mlp*"]`,
		`"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"`, `"quant_algo": "fp8_pb_wo"`, `"quant_algo": "MXFP8", "group_size": 32`,
		`"quant_algo": "NVFP4", "group_size": 16`, `"quant_algo": "W8A16"`, `"quant_algo": "mxfp4"`, `"quant_algo": null`,
		`"quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}`,
	} {
		config, err := ReadConfigFS(modelOptFS(smallLlama, `{"producer": {"name": "modelopt"}, "quantization": {`+settings+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := New(config, nil)
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		want := modelOf(t, smallLlamaWith(`, "quantization_config": {"quant_method": "modelopt", `+settings+`}`), nil)
		plain := bytesOf(modelOf(t, smallLlama, nil))
		if bytesOf(got) != bytesOf(want) || bytesOf(got) == plain != strings.Contains(settings, "null") {
			t.Errorf("%s: %d bytes, want %d; %d are unquantised", settings, bytesOf(got), bytesOf(want), plain)
		}
	}
}

// TestConfigJSONWinsOverModelOptsFile: transformers reads quantization_config alone.
func TestConfigJSONWinsOverModelOptsFile(t *testing.T) {
	config, err := ReadConfigFS(modelOptFS(smallLlamaWith(`, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}`), `not JSON`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(config, nil); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfModelOptsFileHaveTheirPlace(t *testing.T) {
	for quant, place := range map[string]string{
		`{"quantization": {"quant_algo": "W4A16_AWQ"}}`:    `hf_quant_config.json: quantization.quant_algo: "W4A16_AWQ" is not supported`,
		`{"quantization": {"quant_algo": 8}}`:              `hf_quant_config.json: quantization.quant_algo: "8" is not supported`,
		`{"quantization": "FP8"}`:                          "hf_quant_config.json: quantization: ",
		`{"producer": {}}`:                                 "hf_quant_config.json: quantization: is missing",
		`[]`:                                               "hf_quant_config.json: not a JSON object",
		`{"quantization": `:                                "hf_quant_config.json: the JSON object does not end",
		strings.Repeat(" ", maxConfigBytes+1):              "the file is larger than",
		`{"quantization": {"quant_algo": "fp8"}, "a": NaN`: "hf_quant_config.json: line 1",
	} {
		config, err := ReadConfigFS(modelOptFS(smallLlama, quant))
		if err == nil {
			_, err = New(config, nil)
		}
		if err == nil || !strings.Contains(err.Error(), place) || len(err.Error()) > 500 {
			t.Errorf("%.60q: %v", quant, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(smallLlama), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, QuantConfigName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfigFile(filepath.Join(dir, "config.json")); !errors.Is(err, smallfile.ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
}

// TestErrorsOfAWrappersQuantizationNameItsPlace: quantization_config is beside text_config.
func TestErrorsOfAWrappersQuantizationNameItsPlace(t *testing.T) {
	config, err := ReadConfig([]byte(`{"model_type": "llava", "text_config": {"model_type": "llama"}, "quantization_config": {"quant_method": "modelopt", "quant_algo": "x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = New(config, nil); err == nil || !strings.Contains(err.Error(), "config.json: quantization_config.quant_algo") {
		t.Error(err)
	}
}
