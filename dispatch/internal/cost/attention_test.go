package cost

import (
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestSparseAttentionWasCountedAsIfItReadTheWholeCache: a token reads the keys of its indexer for all
// positions, and keys and values of the chosen ones.
func TestSparseAttentionWasCountedAsIfItReadTheWholeCache(t *testing.T) {
	config, err := meta.ReadConfig([]byte(`{"model_type":"deepseek_v32","hidden_size":24,"intermediate_size":36,"num_hidden_layers":3,
		"num_attention_heads":2,"num_key_value_heads":2,"vocab_size":71,"first_k_dense_replace":3,"n_routed_experts":8,"num_experts_per_tok":2,
		"moe_intermediate_size":10,"n_group":1,"topk_group":1,"q_lora_rank":10,"kv_lora_rank":12,"qk_nope_head_dim":8,"qk_rope_head_dim":8,
		"v_head_dim":8,"index_head_dim":12,"index_n_heads":8,"index_topk":4,"dtype":"bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := workloadOf(skeleton, meta.BFloat16)
	const layers, latent, key, chosen, size = 3, 12 + 8, 12, 4, 2
	for _, c := range []struct{ n, tokens, read int }{
		{3, 1, 3}, {1000, 1, chosen}, {1000, 10, 10 * chosen}, {1000, 1000, 1000},
	} {
		want := int64(layers * size * (c.read*latent + c.n*key))
		if got := w.cacheReads(c.n, c.tokens); got != want {
			t.Errorf("%d of %d tokens read %d bytes of the cache, want %d", c.tokens, c.n, got, want)
		}
	}
	if n := len(w.attention); n != 2*layers || w.attention[0].window != chosen || w.attention[1] != (attentionLoad{heads: 8}) {
		t.Errorf("attention is %+v, want %d of %d positions, each with an indexer of 8 heads", w.attention, layers, chosen)
	}
}

// TestCompressedEntriesCountedWithinTheWindowOnly: a token reads the keys of the window, the chosen entries and the
// indexer's keys of all entries. The work on entries was left out, and the cache was counted as if all of it was read.
func TestCompressedEntriesCountedWithinTheWindowOnly(t *testing.T) {
	config, err := meta.ReadConfig([]byte(`{"model_type":"deepseek_v4","hidden_size":18,"num_hidden_layers":3,"compress_ratios":[0,4,128],
		"num_attention_heads":2,"num_key_value_heads":1,"head_dim":8,"qk_rope_head_dim":2,"q_lora_rank":6,"o_groups":1,"o_lora_rank":6,
		"index_head_dim":12,"index_n_heads":4,"index_topk":3,"sliding_window":16,"vocab_size":60,"n_routed_experts":4,"n_shared_experts":1,
		"num_experts_per_tok":2,"moe_intermediate_size":12,"num_hash_layers":0,"hc_mult":3,"max_position_embeddings":2048,"dtype":"bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := workloadOf(skeleton, meta.BFloat16)
	w.cache.States = nil // the tokens of entries that are not complete
	const size, window, key, index = 2, 16, 8, 12
	for _, c := range []struct{ n, tokens, want int }{
		{1000, 1, 3*window*key + 3*key + 250*index + 1000/128*key},
		{1000, 10, 3*window*key + 30*key + 250*index + 1000/128*key},
		{8, 1, 3*8*key + 2*key + 2*index},
	} {
		if got := w.cacheReads(c.n, c.tokens); got != int64(size*c.want) {
			t.Errorf("%d of %d tokens read %d bytes of the cache, want %d", c.tokens, c.n, got, size*c.want)
		}
	}
	want := []attentionLoad{{2, window, 0}, {2, window, 0}, {2, 3, 4}, {4, 0, 4}, {2, window, 0}, {2, 0, 128}}
	if !slices.Equal(w.attention, want) {
		t.Errorf("attention is %+v, want %+v", w.attention, want)
	}
}
