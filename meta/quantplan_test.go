package meta

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Configs as they were published, without the fields that do not size a model.
const (
	deepseekV3Config = `{"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "num_nextn_predict_layers": 1,
		"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}`
	kimiK2Config = `{"model_type": "kimi_k2", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64,
		"n_routed_experts": 384, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "vocab_size": 163840, "num_nextn_predict_layers": 0,
		"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}`
	gptOSS120bConfig = `{"model_type": "gpt_oss", "num_hidden_layers": 36, "num_local_experts": 128, "num_experts_per_tok": 4,
		"hidden_size": 2880, "intermediate_size": 2880, "vocab_size": 201088, "torch_dtype": "bfloat16",
		"quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}}`
	qwen3FP8Config = `{"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 16,
		"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 1000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
		"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
		"modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm", "model.layers.1.mlp.down_proj"]}}`
	awqConfig  = `{"model_type": "qwen2", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 1000, "torch_dtype": "float16", "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true, "modules_to_not_convert": null}}`
	gptqConfig = `{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16, "vocab_size": 1000, "torch_dtype": "float16", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": true}}`
)

func modelOf(t *testing.T, config string, header CheckpointHeader) *Model {
	t.Helper()
	cfg, err := ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, header)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bytesOf(m *Model) (n int64) {
	for _, p := range m.Root.AllParams() {
		if p.SameAs == nil {
			n += p.Bytes()
		}
	}
	return n
}

// TestPlanOfABareConfigCountsQuantizedWeights: without headers a quantized model has the size of
// its published files, less what Heft does not read of them.
func TestPlanOfABareConfigCountsQuantizedWeights(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		config string
		want   float64 // GiB
	}{
		// 641.3 GiB are published: 14.4 of them are the layer that predicts two tokens ahead.
		"DeepSeek-V3":  {deepseekV3Config, 626.9},
		"Kimi-K2":      {kimiK2Config, 958.5},
		"gpt-oss-120b": {gptOSS120bConfig, 60.77},
	} {
		got := float64(bytesOf(modelOf(t, c.config, nil))) / gib
		if got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%s takes %.2f GiB, want %.2f", name, got, c.want)
		}
	}
}

// TestABareQuantizedConfigWithoutADtypeIsBFloat16: the published config of gpt-oss names no dtype, and its
// unquantised weights were planned in float32: 64.8 GiB instead of 60.8. Headers still decide where
// there are some, and float32 is the dtype of other configs without one.
func TestABareQuantizedConfigWithoutADtypeIsBFloat16(t *testing.T) {
	config := strings.Replace(gptOSS120bConfig, `"torch_dtype": "bfloat16",`, "", 1)
	if got := float64(bytesOf(modelOf(t, config, nil))) / (1 << 30); !(math.Abs(got-60.77) <= 0.05) {
		t.Errorf("gpt-oss-120b takes %.2f GiB, want 60.77", got)
	}
	const plain = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100}`
	for name, p := range modelOf(t, plain, nil).Root.AllParams() {
		if p.DType != Float32 {
			t.Errorf("%s is %v without quantization_config, want float32", name, p.DType)
		}
	}
}

// TestUnreadBytesAreThoseOfThePublishedFiles: DeepSeek-V3 is published in 688,586,727,753 bytes, which
// are the weights that are read and a layer that predicts two tokens ahead.
func TestUnreadBytesAreThoseOfThePublishedFiles(t *testing.T) {
	m := modelOf(t, deepseekV3Config, nil)
	got, want := float64(bytesOf(m)+m.UnreadBytes), 688_586_727_753.0
	if got < want*0.9995 || got > want*1.0005 {
		t.Errorf("%.0f bytes, want %.0f", got, want)
	}
	if n := modelOf(t, gptOSS120bConfig, nil).UnreadBytes; n != 0 {
		t.Errorf("gpt-oss: %d bytes are not read", n)
	}
}

// TestABareConfigOfSparseAttentionCountsItsIndexers: in addition to DeepSeek-V3's weights, V3.2 has in each of
// 61 layers a query map and a key map in FP8 with scales, a norm, and weights of heads in 16 bits.
func TestABareConfigOfSparseAttentionCountsItsIndexers(t *testing.T) {
	v32 := modelOf(t, strings.Replace(deepseekV3Config, "deepseek_v3", "deepseek_v32", 1), nil)
	const (
		fp8    = 1536*64*128 + 7168*128
		scales = 4 * (12*64 + 56)
		halves = 2 * (7168*64 + 2*128)
	)
	got, want := bytesOf(v32)-bytesOf(modelOf(t, deepseekV3Config, nil)), int64(61*(fp8+scales+halves))
	if got != want {
		t.Errorf("the indexers take %d bytes, want %d", got, want)
	}
}

// TestSharedIndexersOfAllForms: the layers of glm_moe_dsa without an indexer, from each of the fields that say it.
func TestSharedIndexersOfAllForms(t *testing.T) {
	for fields, want := range map[string]string{
		`"indexer_types": ["full", "shared", "shared", "full", "shared"]`:    "FSSFS",
		`"index_topk_pattern": "FSFSF"`:                                      "FSFSF",
		`"index_topk_pattern": ["full", "full", "shared", "shared", "full"]`: "FFSSF",
		`"index_topk_freq": 2`:                                               "FFSFS",
		`"index_topk_freq": 4, "index_skip_topk_offset": 1`:                  "FSSSF",
		`"index_topk": 7`: "FFFFF",
	} {
		m := modelOf(t, `{"model_type": "glm_moe_dsa", "num_hidden_layers": 5, `+fields+`}`, nil)
		got := ""
		for i := range 5 {
			if m.Root.Find(fmt.Sprintf("model.layers.%d.self_attn.indexer", i)) != nil {
				got += "F"
			} else {
				got += "S"
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
}

// TestABareConfigHasTheTensorsOfItsHeaders: the tensors that a bare config is planned with,
// taken for a checkpoint's headers, give the same sources and bytes.
func TestABareConfigHasTheTensorsOfItsHeaders(t *testing.T) {
	for name, config := range map[string]string{"fp8": qwen3FP8Config, "awq": awqConfig, "gptq": gptqConfig,
		"mxfp4":          smallGPTOSS[:len(smallGPTOSS)-1] + `, "quantization_config": {"quant_method": "mxfp4"}}`,
		"experts in fp8": smallMixtral[:len(smallMixtral)-1] + `, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`} {
		bare := modelOf(t, config, nil)
		header := shapedHeader{}
		quantized := 0
		for _, e := range bare.Root.CheckpointEntries() {
			header.add(e.Name, e.DType, e.Shape...)
		}
		headed := map[string]string{}
		for path, p := range modelOf(t, config, header).Root.AllParams() {
			headed[path] = sourcesText(p)
		}
		for path, p := range bare.Root.AllParams() {
			if got := sourcesText(p); got != headed[path] {
				t.Errorf("%s: %s: %s, with headers %s", name, path, got, headed[path])
			}
			if p.Stored > 0 {
				quantized++
			}
		}
		if quantized == 0 {
			t.Errorf("%s: nothing is quantized", name)
		}
	}
}

func sourcesText(p *Param) string {
	text := fmt.Sprint(p.Bytes())
	for _, s := range p.Sources {
		text += fmt.Sprintf(" %s/%d/%v", s.Tensor, s.Stack, s.Transposed)
		if s.Quant != nil {
			text += fmt.Sprintf("%+v", *s.Quant)
		}
	}
	return text
}

// TestExcludedModulesStayAsTheyAre: modules_to_not_convert names ends, parts and patterns.
func TestExcludedModulesStayAsTheyAre(t *testing.T) {
	m := modelOf(t, qwen3FP8Config, nil)
	for path, want := range map[string]bool{"model.layers.0.mlp.down_proj": true, "model.layers.1.mlp.down_proj": false,
		"model.layers.1.mlp.up_proj": true, "model.embed_tokens": false} {
		if got := m.Root.Find(path).Param("weight").Stored > 0; got != want {
			t.Errorf("%s is quantized: %v, want %v", path, got, want)
		}
	}
	for _, c := range []struct {
		name, module string
		want         bool
	}{
		{"lm_head", "lm_head", true}, {"gate", "model.layers.3.mlp.gate", true}, {"gate", "model.layers.3.mlp.gate_proj", false},
		{"self_attn", "model.layers.3.self_attn.q_proj", true}, {"model.layers.1", "model.layers.10.mlp.up_proj", false},
		{"model.layers.*.self_attn", "model.layers.10.self_attn.q_proj", true}, {"model.layers.*.self_attn", "model.layers.10.mlp.up_proj", false},
		{"a[", "model.a[", true}, {"", "model", false},
	} {
		q := quantised{}
		q.exclude(map[string]any{"modules_to_not_convert": []any{c.name}})
		if got := len(q.excluded) > 0 && q.excluded[0].matches(c.module); got != c.want {
			t.Errorf("%q excludes %s: %v", c.name, c.module, got)
		}
	}
}

// TestEveryFormatHasAWholeRow: the fields that packages ask a row for are there, and what Entries
// says of a matrix is what Stored lists.
func TestEveryFormatHasAWholeRow(t *testing.T) {
	names := map[string]bool{}
	for f := range quantFormats {
		row := f.Row()
		if row.Name == "" || names[row.Name] || len(row.Codes.DTypes) == 0 || row.Codes.Rows < 1 || row.Codes.Columns < 1 {
			t.Errorf("the row of %v: %+v", f, row)
		}
		names[row.Name] = true
		if !row.Published {
			continue
		}
		q := &Quant{Format: f, Scales: "s", Zeros: "z", Global: "g", ScaleDType: row.Scales.assumed(), Rows: 32, Columns: 32}
		if row.Index.exists() {
			q.Index = "i"
		}
		tensors, reason := (&TensorSource{Tensor: "t", Quant: q}).Stored([]int{64, 96})
		if reason != "" {
			t.Fatal(reason)
		}
		want, k := [4]int{}, 0
		for _, tensor := range tensors {
			if tensor.Tensor == "g" {
				continue
			}
			want[k] = int(Elements(tensor.Shape))
			k++
		}
		got := [4]int{}
		got[0], got[1], got[2], got[3] = q.Entries(64, 96)
		if got != want {
			t.Errorf("%v: %v entries, its tensors have %v", f, got, want)
		}
		if n := testing.AllocsPerRun(10, func() { q.Entries(64, 96) }); n != 0 {
			t.Errorf("%v: Entries allocates %v times", f, n)
		}
	}
}

// TestLayersOfMixedPrecision: modelopt names an algorithm for each module; other modules are not quantised. FBGEMM has a scale for each row.
func TestLayersOfMixedPrecision(t *testing.T) {
	config := func(quantisation string) string {
		return `{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16",
			"quantization_config": ` + quantisation + `}`
	}
	mixed := config(`{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["lm_head"], "quantized_layers": {
		"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
		"model.layers.1.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}`)
	rows := config(`{"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200, "modules_to_not_convert": ["model.layers.0.self_attn.q_proj", "lm_head"]}`)
	for config, modules := range map[string]map[string]string{
		mixed: {"model.layers.0.self_attn.q_proj": "fp8 1073741824×256", "model.layers.0.mlp.up_proj": "modelopt nvfp4 1×16", "model.layers.1.mlp.up_proj": "modelopt nvfp4 1×16",
			"model.layers.1.self_attn.q_proj": "none", "lm_head": "none"},
		rows: {"model.layers.0.self_attn.q_proj": "none", "model.layers.0.mlp.up_proj": "fp8 1×256", "lm_head": "none"},
	} {
		m := modelOf(t, config, nil)
		for module, want := range modules {
			got := "none"
			if q := m.Root.Find(module).Param("weight").Sources[0].Quant; q != nil {
				got = fmt.Sprintf("%v %d×%d", q.Format, q.Rows, q.Columns)
			}
			if got != want {
				t.Errorf("%s is %s, want %s", module, got, want)
			}
		}
	}
}

// TestGroupsOfWeightsSharedFlags: the zero points, group sizes and formats of one config group counted for all.
func TestGroupsOfWeightsSharedFlags(t *testing.T) {
	config := func(groups string) string {
		return `{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16",
			"quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head", "model.layers.1.mlp.down_proj"], "config_groups": {` + groups + `}}}`
	}
	const (
		attention = `"group_0": {"targets": ["re:.*self_attn.*"], "format": "int-quantized", "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": false}}`
		named     = `"group_2": {"targets": ["model.layers.0.mlp.up_proj"], "format": "float-quantized", "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true}}`
		linear    = `"group_1": {"targets": ["Linear"], "format": "pack-quantized", "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": true}}`
	)
	for _, groups := range []string{attention + "," + linear + "," + named, linear + "," + named + "," + attention} {
		m := modelOf(t, config(groups), nil)
		for module, want := range map[string]string{
			"model.layers.0.self_attn.q_proj": "int8 1×256 zeros", "model.layers.1.self_attn.o_proj": "int8 1×256 zeros",
			"model.layers.0.mlp.up_proj": "fp8 1073741824×256", "model.layers.1.mlp.up_proj": "int4 packed 1×64",
			"model.layers.1.mlp.down_proj": "none", "lm_head": "none",
		} {
			got := "none"
			if q := m.Root.Find(module).Param("weight").Sources[0].Quant; q != nil {
				if got = fmt.Sprintf("%v %d×%d", q.Format, q.Rows, q.Columns); q.Zeros != "" {
					got += " zeros"
				}
			}
			if got != want {
				t.Errorf("%s is %s, want %s", module, got, want)
			}
		}
	}
	only := modelOf(t, config(attention), nil)
	if q := only.Root.Find("model.layers.0.mlp.up_proj").Param("weight").Sources[0].Quant; q != nil {
		t.Errorf("a weight that no group names is stored as %v", q.Format)
	}
}
