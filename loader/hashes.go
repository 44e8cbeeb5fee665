package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/smallfile"
)

// mostHashes is the maximum size of the file of hashes.
const mostHashes = 4 << 20

// A keptHash is the stored hash of a file, with the file's stamp at that time.
type keptHash struct {
	Stamp string `json:"stamp"`
	Sum   string `json:"sum"` // hexadecimal
}

// KeepHashes reads the hashes that an earlier process stored in the folder dir. Files that have
// not changed since then may be rewritten with the same bytes from now on. [Checkpoint.HashFiles]
// then hashes only the other files, and stores their hashes in dir, which it creates if needed.
// KeepHashes reads no weight. Call it before the checkpoint is used.
func (c *Checkpoint) KeepHashes(dir string) {
	if c.dir == "" || dir == "" {
		return
	}
	c.hashes = filepath.Join(dir, "hashes-"+c.Key()+".json")
	text, err := smallfile.Read(c.hashes, mostHashes)
	if err != nil {
		return // there is no file yet
	}
	var kept map[string]keptHash
	if json.Unmarshal(text, &kept) != nil {
		return // HashFiles replaces it
	}
	for _, f := range c.files {
		if k, ok := kept[f.Name]; ok && !f.inMemory() {
			f.recall(k)
		}
	}
}

// Key returns 24 hexadecimal digits that identify the folder and the names of the files, but not
// their contents. Checkpoints in memory whose files have the same names have the same key.
func (c *Checkpoint) Key() string {
	where := "in memory"
	if c.dir != "" {
		where = c.dir
		if absolute, err := filepath.Abs(where); err == nil {
			where = absolute
		}
	}
	h := sha256.New()
	fmt.Fprintln(h, where)
	for _, f := range c.files {
		fmt.Fprintln(h, f.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// recall uses the stored hash if it belongs to the file as it was opened.
func (f *File) recall(k keptHash) {
	opened := f.identity().stamp
	var sum uint64
	if _, err := fmt.Sscanf(k.Sum, "%x", &sum); err != nil || k.Stamp != opened.String() {
		return
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return
	}
	if now, err := hostmem.StampOf(file); err != nil || now != opened {
		_ = file.Close() // opened for reading
		return
	}
	c := &f.contents
	c.mu.Lock()
	defer c.mu.Unlock()
	c.file, c.sum, c.drop, c.hashed = file, sum, true, opened
}

// keepHashes stores the hashes of all files that have one. If that fails, the next process hashes
// them again.
func (c *Checkpoint) keepHashes() {
	kept := map[string]keptHash{}
	for _, f := range c.files {
		f.contents.mu.Lock()
		if f.contents.file != nil {
			kept[f.Name] = keptHash{f.contents.hashed.String(), fmt.Sprintf("%016x", f.contents.sum)}
		}
		f.contents.mu.Unlock()
	}
	text, err := json.Marshal(kept)
	if err == nil && os.MkdirAll(filepath.Dir(c.hashes), 0o755) == nil {
		_ = atomicfile.WriteFile(c.hashes, text)
	}
}
