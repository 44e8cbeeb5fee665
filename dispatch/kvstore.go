package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/loader"
)

// A KVStore keeps pages of cached keys and values, and snapshots of states, in a folder. Prompts
// of later processes, and of others that use the folder now, reuse them like pages in memory.
// Several models may share a store. Its methods are safe for concurrent use.
type KVStore struct {
	store   *kvstore.Store
	build   string        // hash of the program
	instead kvcache.Store // of tests: used instead of store
}

// KVStoreStats counts the operations of a store since it was opened, and the size of its folder.
type KVStoreStats struct {
	Hits, Misses    int64 // pages that were read, and look-ups that found no page
	Damaged         int64 // files that were ignored because they failed a check
	Written         int64 // pages
	Dropped         int64 // pages that were not written: queue full, page evicted, or error
	Evicted         int64 // pages
	ReadBytes       int64
	WrittenBytes    int64
	Bytes, Limit    int64 // of the folder, over all processes
	WritingDisabled bool  // the folder cannot be locked
}

// OpenKVStore opens the store in dir and creates the folder if it is missing. limit bounds the
// size of all pages in bytes. warn is called like slog.Warn, once for each kind of problem; it
// may be nil. OpenKVStore returns an error if the folder cannot be used. It reads the running
// program once, to tell builds apart. Close the store after the models that use it.
func OpenKVStore(dir string, limit int64, warn func(message string, args ...any)) (*KVStore, error) {
	build, err := thisBuild()
	if err != nil {
		return nil, fmt.Errorf("dispatch: KV store: reading the running program: %w", err)
	}
	store, err := kvstore.Open(dir, kvstore.Options{Limit: limit, Warn: warn})
	if err != nil {
		return nil, err
	}
	return &KVStore{store: store, build: build}, nil
}

// Close stops writing. Close the models first: a model writes its last pages when it is closed.
func (s *KVStore) Close() {
	if s != nil {
		s.store.Close()
	}
}

// Stats returns the counters.
func (s *KVStore) Stats() KVStoreStats {
	st := s.store.Stats()
	return KVStoreStats{Hits: st.Hits, Misses: st.Misses, Damaged: st.Damaged, Written: st.Written, Dropped: st.Dropped,
		Evicted: st.Evicted, ReadBytes: st.ReadBytes, WrittenBytes: st.WrittenBytes, Bytes: st.Bytes, Limit: st.Limit,
		WritingDisabled: st.WritesBlocked}
}

// thisBuild returns a hash of the running program, because two builds may compute different bits.
var thisBuild = sync.OnceValues(func() (string, error) {
	f, err := os.Open("/proc/self/exe") // the program that runs, also if another has its path now
	if err != nil {
		var path string
		if path, err = os.Executable(); err == nil {
			f, err = os.Open(path)
		}
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return string(h.Sum(nil)), err
})

// newBacking returns the backing of the model's KV cache, or nil without a store. memory is used
// for its buffers.
func (m *Model) newBacking(memory backend.Memory) (*kvcache.Backing, error) {
	s := m.options.KVStore
	if s == nil {
		return nil, nil
	}
	context, err := m.kvContext(s.build)
	if err != nil {
		return nil, fmt.Errorf("dispatch: KV store: %w", err)
	}
	backing := &kvcache.Backing{Store: s.store, Secret: s.store.Derive(context), Memory: memory}
	if s.instead != nil {
		backing.Store = s.instead
	}
	return backing, nil
}

// kvContext returns a hash of everything that keys, values and states depend on, except tokens,
// rotary frequencies, adapter and layout of the cache. It does not depend on the number of
// threads. It does not depend on the placement of weights if GPUs compute the CPU's bits.
func (m *Model) kvContext(build string) ([]byte, error) {
	h, o := sha256.New(), &m.settings
	fmt.Fprintf(h, "%q %s/%s %s\n", build, runtime.GOOS, runtime.GOARCH, m.variant)
	fmt.Fprintln(h, o.Precision, o.Quantize, o.KVDType)
	m.writePlaces(h)
	if c := m.skeleton.Config; c != nil {
		fmt.Fprintf(h, "%s %q\n", c.ModelType, c.Raw())
	}
	tree, err := json.Marshal(m.skeleton.Root) // a program may have changed specs
	if err != nil {
		return nil, err
	}
	h.Write(tree)
	err = hashFiles(h, m.checkpoint)
	return h.Sum(nil), err
}

// writePlaces adds the units that a GPU computes, and the GPU, to a hash, unless the GPU computes
// the CPU's bits.
func (m *Model) writePlaces(h hash.Hash) {
	o := &m.settings
	const unfused = "go" // the variant whose kernels round between a multiplication and an addition
	if len(m.stations.list) == 0 || o.Precision == PrecisionHigh && m.variant != unfused {
		return
	}
	fmt.Fprintln(h, m.devices, o.GPUKernels, m.stations.streams.from)
	gpus, _ := o.GPUs().List()
	for _, g := range gpus {
		fmt.Fprintf(h, "%d %q %s\n", g.Number, g.Name, g.Capability)
	}
}

// hashFiles adds the files of a checkpoint to a hash: names, sizes, times and tensors, and the
// bytes of files in memory. It reads no weight from the disk.
func hashFiles(h hash.Hash, c *loader.Checkpoint) error {
	for _, f := range c.Files() {
		fmt.Fprintln(h, f.Name, f.Size)
		if f.Path == "" {
			continue
		}
		info, err := os.Stat(f.Path)
		if err != nil {
			return err
		}
		changed, err := hostmem.StatusChanged(f.Path)
		if err != nil {
			return err
		}
		fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano(), changed)
	}
	for t := range c.Tensors() {
		fmt.Fprintln(h, t.Name, t.DType, t.Shape, t.File.Name, t.Offset)
		if t.File.Path == "" {
			b, err := t.Bytes()
			if err != nil {
				return err
			}
			h.Write(b)
		}
	}
	return nil
}

// adapterIdentity identifies an adapter. Only sequences with the same identity share pages. With
// a store it is a hash of the adapter's contents, which other processes compute too; otherwise it
// is the adapter's number.
func (m *Model) adapterIdentity(number uint64, from *lora.Adapter) string {
	if m.options.KVStore == nil {
		return strconv.FormatUint(number, 10)
	}
	h := sha256.New()
	for i := range from.Pairs {
		p := &from.Pairs[i]
		fmt.Fprintf(h, "%+v %v %v %v %v\n", p.Target, p.A.DType, p.A.Dims, p.B.DType, p.B.Dims)
		h.Write(p.A.Data[:p.A.Bytes()])
		h.Write(p.B.Data[:p.B.Bytes()])
		if !p.Magnitude.IsZero() {
			h.Write(p.Magnitude.Data[:p.Magnitude.Bytes()])
		}
	}
	for i := range from.Saved {
		s := &from.Saved[i]
		fmt.Fprintln(h, s.Name(), s.DType, s.Shape())
		h.Write(s.Data[:s.Bytes()])
	}
	return string(h.Sum(nil))
}

// Salt restricts the sharing of pages of s to sequences that have the same salt and the same
// adapter. The default salt is "". The sequence must be empty.
func (s *Sequence) Salt(salt string) {
	if s.salt = salt; s.kv != nil {
		s.share()
	}
}

// share sets the adapter and the salt of s. Sequences share pages if these, the tokens and the
// rotary frequencies are equal.
func (s *Sequence) share() {
	if s.adapter == nil && s.salt == "" {
		s.kv.Salt([sha256.Size]byte{})
		return
	}
	var text []byte
	if s.adapter != nil {
		text = append(text, 'a')
		text = binary.LittleEndian.AppendUint64(text, uint64(len(s.adapter.identity)))
		text = append(text, s.adapter.identity...)
	}
	text = append(text, 's')
	s.kv.Salt(sha256.Sum256(append(text, s.salt...)))
}

// makeRoom makes room for the stored pages of a prompt.
func (s *Sequence) makeRoom(prompt []int32) {
	n, pass := s.kv.Stored(prompt), s.model.settings.MaxBatchTokens
	if n == 0 {
		return
	}
	s.model.takeBackKV(s.kv, n, pass)
	if missing := s.kv.Missing(n, pass); missing > 0 {
		s.model.growKV(missing)
	}
}
