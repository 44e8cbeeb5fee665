package dispatch_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

func openKVStore(t *testing.T, dir string) *dispatch.KVStore {
	t.Helper()
	s, err := dispatch.OpenKVStore(dir, 1<<30, func(message string, args ...any) { t.Log(message, args) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// storePrompt is a prompt of several pages.
func storePrompt() []int32 {
	prompt := make([]int32, 70)
	for i := range prompt {
		prompt[i] = int32(i*31%223 + 3)
	}
	return prompt
}

// answered runs a prompt and some generated tokens, and returns the logits and how many tokens of the
// prompt were reused.
func answered(t *testing.T, m *dispatch.Model, salt, adapter string, prompt []int32) (reused int, logits []float32) {
	t.Helper()
	s, err := m.NewAdaptedSequence(adapter)
	if err != nil {
		t.Fatal(err)
	}
	s.Salt(salt)
	reused = s.Reuse(prompt)
	_, logits = inChunks(t, m, s, prompt, 512, 5)
	s.Free()
	return reused, logits
}

// storeFolder is a random model.
func storeFolder(t *testing.T, seed uint64) string {
	s := shape{hidden: 96, inner: 160, heads: 4, kv: 2, dim: 24, vocab: 230, layers: 2, dtype: meta.BFloat16, shift: 3}
	return s.folder(t, rand.New(rand.NewPCG(seed, 5)))
}

// TestAStoredPrefixHasTheBitsOfOneInMemory: a model that starts anew answers as the one before went on
// to, and with high precision as one that computes everything.
func TestAStoredPrefixHasTheBitsOfOneInMemory(t *testing.T) {
	dir, prompt := storeFolder(t, 1), storePrompt()
	for name, o := range map[string]dispatch.Options{
		"auto":           {},
		"high":           {Precision: dispatch.PrecisionHigh},
		"keys of q8_0":   {KVDType: meta.Int8},
		"weights of q4":  {Quantize: meta.QuantQ4},
		"float32 keys":   {KVDType: meta.Float32},
		"long precision": {Precision: dispatch.PrecisionHigh, KVDType: meta.BFloat16},
	} {
		t.Run(name, func(t *testing.T) {
			o.Threads, o.Context = 2, 128
			_, alone := answered(t, cpuModel(t, dir, o), "", "", prompt)
			o.KVStore = openKVStore(t, t.TempDir())
			first := cpuModel(t, dir, o)
			if n, logits := answered(t, first, "", "", prompt); n != 0 || firstDifference(logits, alone) >= 0 {
				t.Fatalf("the first prompt reused %d tokens, or has other bits", n)
			}
			_, near := answered(t, first, "", "", prompt)
			first.Close()
			o.Ledger, o.Threads = nil, 1
			again := cpuModel(t, dir, o)
			n, far := answered(t, again, "", "", prompt)
			if n != 64 {
				t.Fatalf("after a restart %d tokens were reused, want 64", n)
			}
			if firstDifference(far, near) >= 0 {
				t.Error("a stored prefix has other bits than one in memory")
			}
			if firstDifference(far, alone) >= 0 {
				t.Error("a stored prefix has other bits than a computed one")
			}
		})
	}
}

// TestStoredPagesOfWindows does so for layers with windows.
func TestStoredPagesOfWindows(t *testing.T) {
	model, prompt := windowed(t, 20, 0), storePrompt()
	for i := range prompt {
		prompt[i] %= 60
	}
	_, alone := answered(t, model(dispatch.Options{}), "", "", prompt)
	store := openKVStore(t, t.TempDir())
	first := model(dispatch.Options{KVStore: store})
	answered(t, first, "", "", prompt)
	first.Close()
	if n, logits := answered(t, model(dispatch.Options{KVStore: store}), "", "", prompt); n != 64 || firstDifference(logits, alone) >= 0 {
		t.Errorf("%d tokens were reused, want 64, or other bits", n)
	}
}

// TestTwoModelsShareStoredPages: what one model has written, another that runs reuses.
func TestTwoModelsShareStoredPages(t *testing.T) {
	dir, where, prompt := storeFolder(t, 1), t.TempDir(), storePrompt()
	open := func() *dispatch.Model { // each with a store of its own, as two processes have
		return cpuModel(t, dir, dispatch.Options{Threads: 1, Context: 128, KVStore: openKVStore(t, where)})
	}
	a, b := open(), open()
	_, want := answered(t, a, "", "", prompt)
	a.Close() // it has written
	if n, logits := answered(t, b, "", "", prompt); n != 64 || firstDifference(logits, want) >= 0 {
		t.Errorf("%d tokens were reused, want 64, or other bits", n)
	}
}

// TestWhatKeysDependOnSeparatesStoredPages: nothing is reused where one part of the key differs.
func TestWhatKeysDependOnSeparatesStoredPages(t *testing.T) {
	dir, where, prompt := storeFolder(t, 1), t.TempDir(), storePrompt()
	usual := dispatch.Options{Threads: 1, Context: 128}
	run := func(dir string, o dispatch.Options, salt string) int {
		o.KVStore = openKVStore(t, where)
		m := cpuModel(t, dir, o)
		defer m.Close()
		n, _ := answered(t, m, salt, "", prompt)
		return n
	}
	if n := run(dir, usual, ""); n != 0 {
		t.Fatalf("the first prompt reused %d tokens", n)
	}
	if n := run(dir, dispatch.Options{Threads: 1, Context: 128, Variant: "go"}, ""); n != 0 && len(kernels.Names()) > 1 {
		t.Errorf("with another variant %d tokens were reused", n)
	}
	for name, n := range map[string]int{
		"precision": run(dir, dispatch.Options{Threads: 1, Context: 128, Precision: dispatch.PrecisionHigh}, ""),
		"kv-dtype":  run(dir, dispatch.Options{Threads: 1, Context: 128, KVDType: meta.Float32}, ""),
		"quantize":  run(dir, dispatch.Options{Threads: 1, Context: 128, Quantize: meta.QuantQ8}, ""),
		"model":     run(storeFolder(t, 2), usual, ""),
		"salt":      run(dir, usual, "mine"),
	} {
		if n != 0 {
			t.Errorf("with another %s %d tokens were reused", name, n)
		}
	}
	if n := run(dir, usual, "mine"); n != 64 {
		t.Errorf("with the same salt %d tokens were reused, want 64", n)
	}
	if n := run(dir, usual, ""); n != 64 {
		t.Errorf("with nothing changed %d tokens were reused, want 64", n)
	}
	shard := filepath.Join(dir, "model.safetensors")
	info, err := os.Stat(shard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 0x40
	if err := os.WriteFile(shard, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(shard, time.Now().Add(time.Hour), info.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := run(dir, usual, ""); n != 0 {
		t.Errorf("with other weights in the same file %d tokens were reused", n)
	}
}

// TestAdaptersSeparateStoredPages: pages belong to what the adapter's files hold, whatever its name.
func TestAdaptersSeparateStoredPages(t *testing.T) {
	where := t.TempDir()
	prompt := storePrompt()[:50]
	skeleton, checkpoint := base(t, ownBase(t))
	dir := adapterDir(t)
	run := func(adapter string) int {
		o := dispatch.Options{Threads: 2, KVTokens: 4096, KVStore: openKVStore(t, where), Adapters: []dispatch.Adapter{{Name: "a", Dir: dir}, {Name: "b", Dir: dir}}}
		m, err := dispatch.New(skeleton, checkpoint, maps(skeleton)["cpu"], o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for i := range prompt {
			prompt[i] %= int32(m.Vocab())
		}
		n, _ := answered(t, m, "", adapter, prompt)
		return n
	}
	if n := run("a"); n != 0 {
		t.Fatalf("the first prompt reused %d tokens", n)
	}
	if n := run(""); n != 0 {
		t.Errorf("without the adapter %d tokens were reused", n)
	}
	if n := run("b"); n != 48 { // the same files
		t.Errorf("with the same adapter under another name %d tokens were reused, want 48", n)
	}
}

// TestDamagedStoredPagesAreComputedAgain: no damage changes an answer.
func TestDamagedStoredPagesAreComputedAgain(t *testing.T) {
	dir, where, prompt := storeFolder(t, 1), t.TempDir(), storePrompt()
	o := dispatch.Options{Threads: 1, Context: 128, Precision: dispatch.PrecisionHigh, KVStore: openKVStore(t, where)}
	m := cpuModel(t, dir, o)
	_, want := answered(t, m, "", "", prompt)
	m.Close()
	err := filepath.WalkDir(where, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".kv") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)/2] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger = nil
	if n, logits := answered(t, cpuModel(t, dir, o), "", "", prompt); n != 0 || firstDifference(logits, want) >= 0 {
		t.Errorf("%d tokens were reused, want 0, or other bits", n)
	}
	if st := o.KVStore.Stats(); st.Damaged == 0 {
		t.Errorf("got %+v", st)
	}
}

// TestAStoreIsInTheLedger: its buffers are counted, and freed with the model.
func TestAStoreIsInTheLedger(t *testing.T) {
	dir, ledger := storeFolder(t, 1), new(dispatch.Ledger)
	held := func(store *dispatch.KVStore) int64 {
		m := cpuModel(t, dir, dispatch.Options{Threads: 1, Context: 128, KVStore: store, Ledger: ledger})
		defer m.Close()
		answered(t, m, "", "", storePrompt())
		return ledger.Held()["activations"]
	}
	without, with := held(nil), held(openKVStore(t, t.TempDir()))
	if with <= without || ledger.Held()["activations"] != 0 || ledger.Held()["kv"] != 0 {
		t.Errorf("activations take %d bytes with a store and %d without; %v are held in the end", with, without, ledger.Held())
	}
}
