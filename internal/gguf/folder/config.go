package folder

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/meta"
)

// An architecture is a row of the table of those that llama.cpp names.
type architecture struct {
	name        string           // general.architecture
	modelType   string           // of config.json
	others      []string         // further ones that config sets
	when        func(*keys) bool // whether the row is meant; nil: always
	names       names
	conventions meta.Conventions
	config      func(*keys, object)           // adds the architecture's own fields; may be nil
	extras      func(*keys) []Extra           // weights that are metadata; may be nil
	own         func(*keys) map[string]string // whole names of tensors that the metadata decides; may be nil
	lists       listing                       // what lists of numbers by layer may be
}

// A listing says what a list of numbers, one for each layer, may be where one number is wanted.
type listing uint8

const (
	equal  listing = iota // all are equal
	sparse                // 0 is a layer without it; the others are equal
	uneven                // the first counts, and config reads the others
)

type object = map[string]any

// keys reads metadata below the architecture's name and keeps the first error.
type keys struct {
	meta gguf.Metadata
	from Source
	arch string
	row  *architecture
	err  error
}

func (k *keys) fail(key, format string, args ...any) {
	if k.err == nil {
		k.err = &gguf.Error{Key: key, Reason: fmt.Sprintf(format, args...)}
	}
}

func (k *keys) note(err error) {
	if k.err == nil {
		k.err = err
	}
}

// int returns a whole number, or def where it is missing. An array whose elements are equal, one for each
// layer, is its element.
func (k *keys) int(key string, def int64) int64 {
	key = k.arch + "." + key
	switch k.meta[key].(type) {
	case []int64, []uint64:
		list, err := k.meta.Ints(key)
		if k.note(err); len(list) == 0 || err != nil {
			return def
		}
		switch {
		case k.row != nil && k.row.lists == uneven:
			return list[0]
		case k.row != nil && k.row.lists == sparse:
			if list = slices.DeleteFunc(slices.Clone(list), func(n int64) bool { return n == 0 }); len(list) == 0 {
				return 0
			}
		}
		if slices.ContainsFunc(list, func(n int64) bool { return n != list[0] }) {
			k.fail(key, "layers that differ in it are not supported")
		}
		return list[0]
	}
	n, ok, err := k.meta.Int(key)
	k.note(err)
	if !ok {
		return def
	}
	return n
}

// size is int of a key that must be there.
func (k *keys) size(key string) int64 {
	n := k.int(key, -1)
	if n < 0 {
		k.fail(k.arch+"."+key, "the key is missing")
	}
	return n
}

// float returns a number as JSON, or def where it is missing.
func (k *keys) float(key string, def float64) float64 {
	x, ok, err := k.meta.Float(k.arch + "." + key)
	k.note(err)
	if !ok {
		return def
	}
	return shortest(x)
}

// shortest returns the shortest decimal number that is x as float32, which the model's config has: 1e-05.
func shortest(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
	if err != nil || float32(short) != float32(x) {
		return x
	}
	return short
}

func (k *keys) bool(key string, def bool) bool {
	b, ok, err := k.meta.Bool(k.arch + "." + key)
	k.note(err)
	if !ok {
		return def
	}
	return b
}

// layers is the number of layers without those that predict further tokens; 0 if that is no reasonable number.
func (k *keys) layers() int64 {
	all, next := k.size("block_count"), k.int("nextn_predict_layers", 0)
	if all < 0 || all > maxLayers || next < 0 || next > all {
		k.fail(k.arch+".block_count", "got %d layers, %d of them for further tokens, want at most %d", all, next, maxLayers)
		return 0
	}
	return all - next
}

// byLayer returns a list of numbers, one for each layer, or nil where it is missing. A single number is that
// of each layer.
func (k *keys) byLayer(key string) []int64 {
	full := k.arch + "." + key
	list := make([]int64, k.layers())
	switch k.meta[full].(type) {
	case []int64, []uint64:
		all, err := k.meta.Ints(full)
		if k.note(err); len(all) < len(list) {
			k.fail(full, "%d numbers for %d layers", len(all), len(list))
			return list
		}
		return all[:len(list)]
	case nil:
		return nil
	}
	n := k.int(key, 0)
	for i := range list {
		list[i] = n
	}
	return list
}

// flags returns a list of flags, one for each layer, or nil where it is missing.
func (k *keys) flags(key string) []bool {
	full := k.arch + "." + key
	list, ok := k.meta[full].([]bool)
	if !ok {
		return nil
	}
	n := k.layers()
	if int64(len(list)) < n {
		k.fail(full, "%d flags for %d layers", len(list), n)
		return nil
	}
	return list[:n]
}

// hasIn reports whether any layer has a tensor.
func (k *keys) hasIn(tensor string) bool {
	for i := range min(k.size("block_count"), maxLayers) {
		if k.has("blk." + strconv.FormatInt(i, 10) + "." + tensor) {
			return true
		}
	}
	return false
}

// rows returns the rows of a matrix, or 0 if the file does not have it.
func (k *keys) rows(tensor string) int64 {
	if t, ok := k.from.Tensor(tensor); ok && len(t.Shape) == 2 {
		return int64(t.Shape[0])
	}
	return 0
}

// denseLayers returns how many layers come before the first mixture. The tensors tell, as the key is missing in
// some files.
func (k *keys) denseLayers() int64 {
	for i := range k.layers() {
		if k.hasAt(int(i), "ffn_gate_inp.weight") {
			return i
		}
	}
	return k.layers()
}

// queryBias reports whether the projection of queries has a bias, by itself or with those of keys and values.
func (k *keys) queryBias() bool { return k.hasIn("attn_q.bias") || k.hasIn("attn_qkv.bias") }

// maxLayers bounds the layers that are looked through.
const maxLayers = 1 << 12

// has reports whether the file has a tensor.
func (k *keys) has(tensor string) bool { return k.from.has(tensor) }

// config makes config.json.
func (k *keys) config(a *architecture) ([]byte, error) {
	k.row = a
	hidden, heads := k.size("embedding_length"), k.size("attention.head_count")
	c := object{
		"model_type": a.modelType, "hidden_size": hidden, "num_hidden_layers": k.layers(),
		"num_attention_heads": heads, "num_key_value_heads": k.int("attention.head_count_kv", heads),
		"max_position_embeddings": k.size("context_length"),
		"rope_theta":              k.float("rope.freq_base", 10000),
		"tie_word_embeddings":     !k.has("output.weight"), "use_cache": true,
	}
	if inner := k.int("feed_forward_length", 0); inner > 0 {
		c["intermediate_size"] = inner
	}
	if eps := k.float("attention.layer_norm_rms_epsilon", 0); eps > 0 {
		c["rms_norm_eps"] = eps
	}
	if heads > 0 {
		c["head_dim"] = k.int("attention.key_length", hidden/heads)
	}
	if v := k.int("attention.value_length", -1); a.lists != uneven && v >= 0 && c["head_dim"] != v && k.int("attention.kv_lora_rank", 0) == 0 {
		k.fail(k.arch+".attention.value_length", "%d beside keys of %v is not supported", v, c["head_dim"])
	}
	k.vocabulary(c)
	k.scaling(c)
	if a.config != nil {
		a.config(k, c)
	}
	k.next(a, c)
	if k.err != nil {
		return nil, k.err
	}
	return json.MarshalIndent(c, "", "  ")
}

// vocabulary adds what the embedding and the tokenizer say.
func (k *keys) vocabulary(c object) {
	t, ok := k.from.Tensor("token_embd.weight")
	if !ok || len(t.Shape) != 2 {
		k.fail("token_embd.weight", "the embedding table is missing")
		return
	}
	c["vocab_size"] = t.Shape[0]
	c["torch_dtype"] = "float16"
	switch t.Type {
	case gguf.F32:
		c["torch_dtype"] = "float32"
	case gguf.BF16:
		c["torch_dtype"] = "bfloat16"
	}
	for field, key := range map[string]string{"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"} {
		id, ok, err := k.meta.Int("tokenizer.ggml." + key + "_token_id")
		k.note(err)
		c[field] = nil
		if ok && id >= 0 && id < int64(t.Shape[0]) {
			c[field] = id
		}
	}
}

// scaling adds rope_scaling, of metadata or of the tensors with factors.
func (k *keys) scaling(c object) {
	const original = "original_max_position_embeddings"
	kind, _, err := k.meta.Text(k.arch + ".rope.scaling.type")
	k.note(err)
	factor := k.float("rope.scaling.factor", k.float("rope.scale_linear", 0))
	trained := k.int("rope.scaling.original_context_length", 0)
	s := object{}
	switch {
	case kind == "yarn":
		s["rope_type"], s["factor"] = "yarn", factor
		for field, key := range map[string]string{"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow", "attention_factor": "yarn_attn_factor"} {
			if x := k.float("rope.scaling."+key, 0); x > 0 && !(field == "attention_factor" && x == 1) {
				s[field] = x
			}
		}
	case kind == "linear" && factor != 1, kind == "" && factor != 0 && factor != 1:
		s["rope_type"], s["factor"] = "linear", factor
	}
	if trained > 0 {
		s[original] = trained
	}
	long, short := k.factors("rope_factors_long.weight"), k.factors("rope_factors_short.weight")
	if freqs := k.factors("rope_freqs.weight"); freqs != nil {
		long, short = freqs, freqs
		s["attention_factor"] = 1
	} else if long != nil {
		if x := k.float("rope.scaling.attn_factor", 0); x > 0 {
			s["attention_factor"] = x
		}
		if trained > 0 {
			c[original] = trained
		}
	}
	if long != nil {
		if short == nil {
			k.fail("rope_factors_short.weight", "the tensor is missing beside the long factors")
		}
		s["rope_type"], s["long_factor"], s["short_factor"] = "longrope", long, short
	}
	if s["rope_type"] != nil {
		c["rope_scaling"] = s
	}
}

// factors reads a tensor of rope's factors, or returns nil where there is none.
func (k *keys) factors(name string) []float64 {
	t, ok := k.from.Tensor(name)
	if !ok {
		if t, ok = k.from.Tensor("blk.0." + name); !ok {
			return nil
		}
	}
	if t.Type != gguf.F32 || t.Size > 1<<16 {
		k.fail(name, "got %v of shape %v, want a short vector of F32", t.Type, t.Shape)
		return nil
	}
	list, err := k.from.Floats(t)
	k.note(err)
	for i := range list {
		list[i] = shortest(list[i])
	}
	return list
}

// lookup returns the row of the file's architecture, or nil.
func (k *keys) lookup() *architecture {
	for i := range architectures {
		if a := &architectures[i]; a.name == k.arch && (a.when == nil || a.when(k)) {
			return a
		}
	}
	return nil
}

// An Architecture is a name of llama.cpp's, and the types of models that have it.
type Architecture struct {
	Name       string
	ModelTypes []string
}

// Architectures lists the architectures that [Open] knows, in alphabetical order.
func Architectures() []Architecture {
	var list []Architecture
	for _, row := range architectures {
		at := slices.IndexFunc(list, func(a Architecture) bool { return a.Name == row.name })
		if at < 0 {
			at, list = len(list), append(list, Architecture{Name: row.name})
		}
		for _, t := range append([]string{row.modelType}, row.others...) {
			if types := &list[at].ModelTypes; !slices.Contains(*types, t) {
				*types = append(*types, t)
			}
		}
	}
	slices.SortFunc(list, func(a, b Architecture) int { return strings.Compare(a.Name, b.Name) })
	return list
}
