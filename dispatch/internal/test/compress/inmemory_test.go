package compress_test

import (
	"context"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestAutoCodesWeightsInMemory: a model that streams reads less from the disk if the weights that stay in memory are coded.
// Its logits are those of stored weights, also after weights have lost their memory, and it
// writes no file of weights.
func TestAutoCodesWeightsInMemory(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 512, Inner: 1536, Heads: 4, KV: 2, Dim: 128, Vocab: 300, Layers: 4, DType: meta.BFloat16}
	dir := s.Folder(t, rand.New(rand.NewPCG(3, 22)))
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, 8)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	stored := dispatch.Options{Threads: 2, MaxSequences: 1, MaxBatchTokens: 16, CacheDir: t.TempDir(), MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(codedTotal(skeleton))}}}
	auto := stored
	auto.Compress = dispatch.CompressAuto
	before, _, err := dispatch.Plan(skeleton, stored)
	if err != nil {
		t.Fatal(err)
	}
	plan, planned, err := dispatch.Plan(skeleton, auto.KnownCoding(skeleton, checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	coding := dispatch.CodingOf(skeleton, &plan, &planned)
	if coding == nil || !coding.InMemory || len(plan.Warnings) > 0 {
		t.Fatalf("coding %+v, warnings %q, want coded weights in memory alone", coding, plan.Warnings)
	}
	if plan.DiskBytesPerToken == 0 || 11*plan.DiskBytesPerToken > 10*before.DiskBytesPerToken {
		t.Errorf("a token reads %d bytes, %d without coding, want a tenth less", plan.DiskBytesPerToken, before.DiskBytesPerToken)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Warm(context.Background())
	m.Promote(context.Background())
	dispatchtest.SameLogits(t, "promoted", dispatchtest.ForcedLogits(t, m, ids, prompt, 8), want)
	from := m.Status().TierReadBytes
	dispatchtest.SameLogits(t, "settled", dispatchtest.ForcedLogits(t, m, ids, prompt, 8), want)
	passes := int64(len(ids) - prompt + (prompt+7)/8)
	// Activations of the prompt take the lent memory back, so that the weights in it are read again.
	if read, per := m.Status().TierReadBytes-from, plan.DiskBytesPerToken; read > passes*(per+per/8)+2*plan.LentBytes {
		t.Errorf("%d passes read %d bytes, planned are %d for each", passes, read, per)
	}
	m.SetMemoryLimit(m.SetMemoryLimit(0))
	for range 2 {
		dispatchtest.SameLogits(t, "with the least memory", dispatchtest.ForcedLogits(t, m, ids, prompt, 8), want)
	}
	noWeightsIn(t, auto.CacheDir)
}

// TestCodedWeightsLeaveLongRequestsRoom: where auto coded weights in memory, requests could be no longer than the KV cache
// that the plan had beside them. The cache grows at the cost of coded weights as it does at that of stored ones.
func TestCodedWeightsLeaveLongRequestsRoom(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 1024, Inner: 4096, Heads: 8, KV: 2, Dim: 128, Vocab: 300, Layers: 12, DType: meta.BFloat16}
	config, err := meta.ReadConfig([]byte(strings.Replace(s.Config(), `"max_position_embeddings": 128`, `"max_position_embeddings": 8192`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, compress := range []dispatch.Compression{dispatch.CompressNone, dispatch.CompressAuto} {
		o := dispatch.Options{MaxSequences: 1, MaxBatchTokens: 16, Compress: compress, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 240 << 20}}}
		plan, planned, err := dispatch.Plan(model, o)
		if err != nil {
			t.Fatal(err)
		}
		if coding := dispatch.CodingOf(model, &plan, &planned); (coding != nil && coding.InMemory) != (compress == dispatch.CompressAuto) {
			t.Errorf("%v: coding %+v", compress, coding)
		}
		if planned.KVTokens >= 8192 || planned.MaxModelLen != 8192 {
			t.Errorf("%v: a KV cache of %d tokens and requests of at most %d, want fewer than 8192 and 8192", compress, planned.KVTokens, planned.MaxModelLen)
		}
	}
}

// TestMoreMemoryReadsNoMoreWhereOnlyTablesStream: with the memory for all coded matrices but not for the table of
// embeddings, which is not coded, auto used weights as stored, of which a token of an 8B model then read 2.9 GB.
func TestMoreMemoryReadsNoMoreWhereOnlyTablesStream(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 1024, Inner: 4096, Heads: 8, KV: 2, Dim: 128, Vocab: 32000, Layers: 12, DType: meta.BFloat16}
	config, err := meta.ReadConfig([]byte(s.Config()))
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for limit, last := int64(308<<20), int64(math.MaxInt64); limit < 450<<20; limit += 4 << 20 {
		o := dispatch.Options{MaxSequences: 1, MaxBatchTokens: 16, Compress: dispatch.CompressAuto, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}}
		plan, planned, err := dispatch.Plan(model, o)
		if err != nil {
			t.Fatal(err)
		}
		if plan.DiskBytesPerToken > last {
			t.Errorf("%d MiB: a token reads %d bytes, %d with 4 MiB less", limit>>20, plan.DiskBytesPerToken, last)
		}
		coding := dispatch.CodingOf(model, &plan, &planned)
		if last = plan.DiskBytesPerToken; coding != nil && coding.InMemory && last < 1<<20 {
			tables++
		}
	}
	if tables == 0 {
		t.Error("no limit had all coded matrices in memory and the table on the disk")
	}
}

// noWeightsIn fails if a file below dir is large enough for weights.
func noWeightsIn(t *testing.T, dir string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 64<<10 {
			t.Errorf("%s has %d bytes, want no file of weights", filepath.Join(dir, path), info.Size())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
