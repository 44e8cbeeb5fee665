package atomicfile

import (
	"io"
	"path/filepath"
)

// A Batch replaces several files of a folder: all are complete and on disk before the first is
// renamed. The renames follow one another in the order of Write, so that the last file can name
// the others.
type Batch struct {
	dir, id string
	lock    *File // empty; while it is locked the files of the batch are not stale
	files   []*File
}

// NewBatch begins a batch in dir, which must exist, and removes the temporary files that killed
// writers left there, but for those that keep, if it is not nil, wants to stay for now: it is
// called with their names.
func NewBatch(dir string, keep func(temp string) bool) (*Batch, error) {
	removeStale(dir, func(name string) bool { return keep == nil || !keep(name) })
	lock, err := Create(filepath.Join(dir, "batch.lock"))
	if err != nil {
		return nil, err
	}
	return &Batch{dir: dir, id: idOf(filepath.Base(lock.Name())), lock: lock}, nil
}

// Write adds the file called name, which fill writes, and syncs it to disk. It returns the name of
// the temporary file, so that it can be checked. If Write fails the file is not part of the batch.
func (b *Batch) Write(name string, fill func(io.Writer) error) (temp string, err error) {
	path := filepath.Join(b.dir, name)
	f, err := create(path, filepath.Join(b.dir, b.id+tail(path)))
	if err != nil {
		return "", err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.close(); err == nil {
		err = e
	}
	if err != nil {
		f.Discard()
		return "", err
	}
	b.files = append(b.files, f)
	return filepath.Base(f.Name()), nil
}

// Names returns the final names of the files that were not renamed yet.
func (b *Batch) Names() []string {
	var names []string
	for _, f := range b.files {
		names = append(names, filepath.Base(f.path))
	}
	return names
}

// Commit gives all files their final names and syncs the folder. If a rename fails, the files
// before it are in place, and [Batch.Discard] removes the others.
func (b *Batch) Commit() error {
	for len(b.files) > 0 {
		if err := b.files[0].rename(); err != nil {
			return err
		}
		b.files = b.files[1:]
	}
	b.Discard()
	return SyncDir(b.dir)
}

// Discard removes the files that were not renamed. After Commit it does nothing, so that it can be
// deferred.
func (b *Batch) Discard() {
	for _, f := range b.files {
		f.Discard()
	}
	b.files = nil
	b.lock.Discard()
}
