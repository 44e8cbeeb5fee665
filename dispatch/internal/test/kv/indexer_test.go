package kv_test

import (
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
)

// TestStoredPagesOfIndexers: the keys of indexers are stored with the page, so a model that starts anew
// chooses the positions that the one before chose. In glm_moe_dsa some layers have no indexer. In deepseek_v4
// entries of several tokens are stored so, and the tokens of unfinished ones are states. In qwen3_next some layers
// have states instead of keys: a plan with a store divided by the size of a page that was not known yet.
func TestStoredPagesOfIndexers(t *testing.T) {
	prompt := dispatchtest.StorePrompt()
	for i := range prompt {
		prompt[i] %= 60
	}
	for _, name := range []string{"family-deepseek-v32-1", "family-glm-moe-dsa-1", "family-qwen3-next-1", "family-deepseek-v4-1", "family-deepseek-v4-5"} {
		dir := golden.OwnDir(t, name)
		for precision, o := range map[string]dispatch.Options{"auto": {}, "high": {Precision: dispatch.PrecisionHigh}} {
			o.Threads = 2
			_, alone := dispatchtest.Answered(t, dispatchtest.OpenModel(t, dir, o), "", "", prompt)
			o.KVStore = dispatchtest.OpenKVStore(t, t.TempDir())
			first := dispatchtest.OpenModel(t, dir, o)
			dispatchtest.Answered(t, first, "", "", prompt)
			first.Close()
			o.Threads = 3
			if n, logits := dispatchtest.Answered(t, dispatchtest.OpenModel(t, dir, o), "", "", prompt); n != 64 || dispatchtest.FirstDifference(logits, alone) >= 0 {
				t.Errorf("%s, %s: %d tokens were reused, want 64, or other bits", name, precision, n)
			}
		}
	}
}
