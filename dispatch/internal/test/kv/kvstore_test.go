package kv_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// TestAStoredPrefixHasTheBitsOfOneInMemory: a model that starts anew answers as the one before went on
// to, and with high precision as one that computes everything.
func TestAStoredPrefixHasTheBitsOfOneInMemory(t *testing.T) {
	dir, prompt := dispatchtest.StoreFolder(t, 1), dispatchtest.StorePrompt()
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
			_, alone := dispatchtest.Answered(t, dispatchtest.OpenModel(t, dir, o), "", "", prompt)
			o.KVStore = dispatchtest.OpenKVStore(t, t.TempDir())
			first := dispatchtest.OpenModel(t, dir, o)
			if n, logits := dispatchtest.Answered(t, first, "", "", prompt); n != 0 || dispatchtest.FirstDifference(logits, alone) >= 0 {
				t.Fatalf("the first prompt reused %d tokens, or has other bits", n)
			}
			_, near := dispatchtest.Answered(t, first, "", "", prompt)
			first.Close()
			o.Ledger, o.Threads = nil, 1
			again := dispatchtest.OpenModel(t, dir, o)
			n, far := dispatchtest.Answered(t, again, "", "", prompt)
			if n != 64 {
				t.Fatalf("after a restart %d tokens were reused, want 64", n)
			}
			if dispatchtest.FirstDifference(far, near) >= 0 {
				t.Error("a stored prefix has other bits than one in memory")
			}
			if dispatchtest.FirstDifference(far, alone) >= 0 {
				t.Error("a stored prefix has other bits than a computed one")
			}
		})
	}
}

// TestStoredPagesOfWindows does so for layers with windows.
func TestStoredPagesOfWindows(t *testing.T) {
	model, prompt := dispatchtest.Windowed(t, 20, 0), dispatchtest.StorePrompt()
	for i := range prompt {
		prompt[i] %= 60
	}
	_, alone := dispatchtest.Answered(t, model(dispatch.Options{}), "", "", prompt)
	store := dispatchtest.OpenKVStore(t, t.TempDir())
	first := model(dispatch.Options{KVStore: store})
	dispatchtest.Answered(t, first, "", "", prompt)
	first.Close()
	if n, logits := dispatchtest.Answered(t, model(dispatch.Options{KVStore: store}), "", "", prompt); n != 64 || dispatchtest.FirstDifference(logits, alone) >= 0 {
		t.Errorf("%d tokens were reused, want 64, or other bits", n)
	}
}

// TestTwoModelsShareStoredPages: a running model reuses the pages that another one wrote.
func TestTwoModelsShareStoredPages(t *testing.T) {
	dir, where, prompt := dispatchtest.StoreFolder(t, 1), t.TempDir(), dispatchtest.StorePrompt()
	open := func() *dispatch.Model { // each with a store of its own, as two processes have
		return dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Context: 128, KVStore: dispatchtest.OpenKVStore(t, where)})
	}
	a, b := open(), open()
	_, want := dispatchtest.Answered(t, a, "", "", prompt)
	a.Close() // it has written
	if n, logits := dispatchtest.Answered(t, b, "", "", prompt); n != 64 || dispatchtest.FirstDifference(logits, want) >= 0 {
		t.Errorf("%d tokens were reused, want 64, or other bits", n)
	}
}

// TestWhatKeysDependOnSeparatesStoredPages: nothing is reused where one part of the key differs.
func TestWhatKeysDependOnSeparatesStoredPages(t *testing.T) {
	dir, where, prompt := dispatchtest.StoreFolder(t, 1), t.TempDir(), dispatchtest.StorePrompt()
	usual := dispatch.Options{Threads: 1, Context: 128}
	run := func(dir string, o dispatch.Options, salt string) int {
		o.KVStore = dispatchtest.OpenKVStore(t, where)
		m := dispatchtest.OpenModel(t, dir, o)
		defer m.Close()
		n, _ := dispatchtest.Answered(t, m, salt, "", prompt)
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
		"model":     run(dispatchtest.StoreFolder(t, 2), usual, ""),
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

// TestAdaptersSeparateStoredPages: pages belong to the contents of the adapter's files, whatever its name.
func TestAdaptersSeparateStoredPages(t *testing.T) {
	where := t.TempDir()
	prompt := dispatchtest.StorePrompt()[:50]
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	dir := dispatchtest.AdapterDir(t)
	run := func(adapter string) int {
		o := dispatch.Options{Threads: 2, KVTokens: 4096, KVStore: dispatchtest.OpenKVStore(t, where), Adapters: []dispatch.Adapter{{Name: "a", Dir: dir}, {Name: "b", Dir: dir}}}
		m, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["cpu"], o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for i := range prompt {
			prompt[i] %= int32(m.Vocab())
		}
		n, _ := dispatchtest.Answered(t, m, "", adapter, prompt)
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
	dir, where, prompt := dispatchtest.StoreFolder(t, 1), t.TempDir(), dispatchtest.StorePrompt()
	o := dispatch.Options{Threads: 1, Context: 128, Precision: dispatch.PrecisionHigh, KVStore: dispatchtest.OpenKVStore(t, where)}
	m := dispatchtest.OpenModel(t, dir, o)
	_, want := dispatchtest.Answered(t, m, "", "", prompt)
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
	if n, logits := dispatchtest.Answered(t, dispatchtest.OpenModel(t, dir, o), "", "", prompt); n != 0 || dispatchtest.FirstDifference(logits, want) >= 0 {
		t.Errorf("%d tokens were reused, want 0, or other bits", n)
	}
	if st := o.KVStore.Stats(); st.Damaged == 0 {
		t.Errorf("got %+v", st)
	}
}

// TestAStoreIsInTheLedger: its buffers are counted, and freed with the model.
func TestAStoreIsInTheLedger(t *testing.T) {
	dir, ledger := dispatchtest.StoreFolder(t, 1), new(dispatch.Ledger)
	held := func(store *dispatch.KVStore) int64 {
		m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Context: 128, KVStore: store, Ledger: ledger})
		defer m.Close()
		dispatchtest.Answered(t, m, "", "", dispatchtest.StorePrompt())
		return ledger.Held()["activations"]
	}
	without, with := held(nil), held(dispatchtest.OpenKVStore(t, t.TempDir()))
	if with <= without || ledger.Held()["activations"] != 0 || ledger.Held()["kv"] != 0 {
		t.Errorf("activations take %d bytes with a store and %d without; %v are held in the end", with, without, ledger.Held())
	}
}
