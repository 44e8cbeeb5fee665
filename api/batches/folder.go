package batches

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/atomicfile"
)

// A file is a file as clients see it.
type file struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
}

// Purposes of files.
const (
	purposeBatch  = "batch"
	purposeOutput = "batch_output"
)

// keptFile is the description of a file on disk.
type keptFile struct {
	File  file   `json:"file"`
	Owner string `json:"owner"`
	Order order  `json:"order"`
}

const (
	// maxFiles is the maximum number of files.
	maxFiles = 10_000
	// maxDescription is the maximum size of the description of a file or a batch in bytes.
	maxDescription = 1 << 20
	// descriptionBytes is the size that a description counts with against the limit of the store.
	descriptionBytes = 4 << 10
	// step is the number of bytes that a growing file reserves at once from the store's limit.
	step = 1 << 20
)

var errNoFile = errors.New("batches: no such file")

// fileID matches ids of files. A matching id is safe as an element of a path.
var fileID = regexp.MustCompile(`^file-[a-z0-9]{1,64}$`)

// A folder keeps files. It is safe for concurrent use.
type folder struct {
	dir     string
	store   *store.Store
	lock    *hold
	reserve *reserve
	mu      sync.Mutex
	files   map[string]*keptFile
	last    order // of the newest file
}

// An order is a time of creation in nanoseconds, by which lists are sorted. Later creations have a
// greater order, even if the clock was set back.
type order int64

// newOrder returns the order of a creation at now.
func newOrder(now time.Time) order { return order(now.UnixNano()) }

// follow makes o greater than last, and then sets last to o.
func (o *order) follow(last *order) {
	*o = max(*o, *last+1)
	*last = *o
}

// openFolder opens a folder of files and creates it if it does not exist. It reads the descriptions
// and counts the files.
func openFolder(dir string, s *store.Store, lock *hold) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	atomicfile.RemoveStale(dir)
	f := &folder{dir: dir, store: s, lock: lock, files: map[string]*keptFile{}}
	return f, f.reread()
}

// reread adds files that another process has left in the folder, and forgets files that were
// removed from it.
func (f *folder) reread() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	there := map[string]bool{}
	err := eachDescription(f.dir, func(path string, b []byte) error {
		var k keptFile
		if err := json.Unmarshal(b, &k); err != nil {
			return err
		}
		if !fileID.MatchString(k.File.ID) || path != f.description(k.File.ID) {
			return errors.New("it has another name")
		}
		info, err := os.Stat(f.data(k.File.ID))
		if err != nil || info.Size() != k.File.Bytes {
			return fmt.Errorf("its contents are missing or damaged: %w", err)
		}
		f.last = max(f.last, k.Order)
		if there[k.File.ID] = true; f.files[k.File.ID] == nil {
			f.files[k.File.ID] = &k
			f.store.Found(k.bytes())
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, k := range f.files {
		if !there[id] {
			f.forget(k)
		}
	}
	return nil
}

// bytes returns what a file counts against the limit of the store.
func (k *keptFile) bytes() int64 { return k.File.Bytes + descriptionBytes }

// forget removes a file from f, but not from the disk. The caller holds f.mu.
func (f *folder) forget(k *keptFile) {
	delete(f.files, k.File.ID)
	f.store.Found(-k.bytes())
}

// eachDescription calls use with each description in dir. If use fails, the description is skipped
// with a line in the log.
func eachDescription(dir string, use func(path string, b []byte) error) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), descriptionSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, err := readSmall(path)
		if err == nil {
			err = use(path, b)
		}
		if err != nil {
			slog.Warn("batches: skipping a damaged file", "path", path, "reason", err)
		}
	}
	return nil
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDescription+1))
	if err == nil && len(b) > maxDescription {
		err = fmt.Errorf("it has more than %d bytes", maxDescription)
	}
	return b, err
}

const descriptionSuffix = ".json"

func (f *folder) description(id string) string { return filepath.Join(f.dir, id+descriptionSuffix) }

// data returns the path of a file's contents.
func (f *folder) data(id string) string { return filepath.Join(f.dir, id+".data") }

// removeOthers removes contents that have no description and that keep does not name. They are left
// over from uploads that a killed process did not finish.
func (f *folder) removeOthers(keep map[string]bool) {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	for _, e := range list {
		id, ok := strings.CutSuffix(e.Name(), ".data")
		if ok && fileID.MatchString(id) && f.files[id] == nil && !keep[id] {
			_ = os.Remove(f.data(id)) // if this fails, the next start removes it
		}
	}
}

// upload writes the contents of a new file from in to disk while it reads them, and returns their
// size. It fails with store.ErrFull, or if reading in fails. The caller must call add or drop
// afterwards.
func (f *folder) upload(id string, in io.Reader) (size int64, err error) {
	f.mu.Lock()
	many := len(f.files) >= maxFiles
	f.mu.Unlock()
	if many {
		return 0, errManyFiles
	}
	if err := f.lock.ready(f.data(id)); err != nil {
		return 0, err
	}
	out, err := atomicfile.Create(f.data(id))
	if err != nil {
		return 0, fmt.Errorf("batches: %w", err)
	}
	defer out.Discard()
	if err := out.Chmod(0o600); err != nil {
		return 0, fmt.Errorf("batches: %w", err)
	}
	reserved := int64(0)
	defer func() {
		if err != nil {
			f.store.Found(-reserved)
			return
		}
		f.store.Found(size - reserved)
	}()
	buffer := make([]byte, uploadBuffer)
	for {
		n, err := in.Read(buffer)
		if size+int64(n) > reserved {
			more := int64(step)
			if f.store.Reserve(more) != nil { // the rest may be smaller and still fit
				more = size + int64(n) - reserved
				if err := f.store.Reserve(more); err != nil {
					return size, err
				}
			}
			reserved += more
		}
		if _, failed := out.Write(buffer[:n]); failed != nil {
			return size, fmt.Errorf("batches: %w", failed)
		}
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return size, out.Commit()
		}
		if err != nil {
			return size, err
		}
	}
}

// uploadBuffer is the size of the buffer of an upload.
const uploadBuffer = 64 << 10

var errManyFiles = fmt.Errorf("batches: there are %d files, which is the most: delete some", maxFiles)

// add writes the description of a file whose contents are in place and counted.
func (f *folder) add(k *keptFile) error { return f.addBy(k, f.lock.describe) }

// addResults is add for results. Their description may use the reserve.
func (f *folder) addResults(k *keptFile) error { return f.addBy(k, f.reserve.describe) }

func (f *folder) addBy(k *keptFile, describe func(path string, v any) error) error {
	f.mu.Lock()
	k.Order.follow(&f.last)
	f.mu.Unlock()
	if err := f.store.Reserve(descriptionBytes); err != nil {
		return err
	}
	if err := describe(f.description(k.File.ID), k); err != nil {
		f.store.Found(-descriptionBytes)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if read := f.files[k.File.ID]; read != nil { // reread has read it a moment ago
		f.forget(read)
	}
	f.files[k.File.ID] = k
	return nil
}

// drop removes contents of size bytes that have no description.
func (f *folder) drop(id string, size int64) {
	_ = os.Remove(f.data(id)) // if this fails, removeOthers removes it at the next start
	f.store.Found(-size)
}

// describe writes a description to path.
func (h *hold) describe(path string, v any) error {
	if err := h.ready(path); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err == nil {
		err = atomicfile.WriteFile(path, b)
	}
	if err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	return nil
}

// find returns a file of an owner, or errNoFile.
func (f *folder) find(owner, id string) (*keptFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.files[id]; k != nil && k.Owner == owner {
		return k, nil
	}
	return nil, errNoFile
}

// remove deletes a file.
func (f *folder) remove(k *keptFile) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[k.File.ID] != k {
		return errNoFile
	}
	for _, path := range []string{f.description(k.File.ID), f.data(k.File.ID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("batches: %w", err)
		}
	}
	f.forget(k)
	return nil
}

// withdraw removes the description of a file and keeps its contents, which no longer count against
// the limit.
func (f *folder) withdraw(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.files[id]; k != nil {
		_ = os.Remove(f.description(id)) // if this fails, add replaces it
		f.forget(k)
	}
}

// open opens the contents of a file. If they were removed from the folder, it forgets the file and
// returns errNoFile.
func (f *folder) open(k *keptFile) (*os.File, error) {
	in, err := os.Open(f.data(k.File.ID))
	if errors.Is(err, fs.ErrNotExist) {
		slog.Warn("batches: the contents of a file were removed from the store", "path", f.data(k.File.ID))
		return nil, cmp.Or(f.remove(k), errNoFile)
	}
	if err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	return in, nil
}

// list returns the files of an owner, oldest first. If purpose is "", it returns files of any
// purpose.
func (f *folder) list(owner, purpose string) []file {
	f.mu.Lock()
	defer f.mu.Unlock()
	var mine []*keptFile
	for _, k := range f.files {
		if k.Owner == owner && (purpose == "" || k.File.Purpose == purpose) {
			mine = append(mine, k)
		}
	}
	slices.SortFunc(mine, func(a, b *keptFile) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.File.ID, b.File.ID))
	})
	var all []file
	for _, k := range mine {
		all = append(all, k.File)
	}
	return all
}
