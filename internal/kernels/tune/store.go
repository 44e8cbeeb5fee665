package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/smallfile"
)

// version is that of the files and of the kernels' patterns. A file of another version is measured
// again.
const version = 2

// mostBytes bounds what is read of a file; one has some 3 KiB.
const mostBytes = 64 << 10

// A stored is the content of a file.
type stored struct {
	Version int `json:"version"`
	Key
	Report
}

// A Store keeps reports in a folder, which is made where it is needed. An empty Folder keeps none.
// Processes may share it: files are replaced atomically.
type Store struct {
	Folder string
	// Log gets a line where a file is damaged or cannot be written; nil means slog's default.
	Log *slog.Logger
}

// DefaultFolder returns the folder in which Heft's programs keep measurements of the machine: heft
// in the user's cache folder, or "" if the user has none.
func DefaultFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "heft")
}

func (s *Store) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}

// Load returns the report of a key, or nil where there is none. A file that is damaged or of
// another version counts as none; a damaged one is logged.
func (s *Store) Load(k Key) *Report {
	if s.Folder == "" {
		return nil
	}
	path := filepath.Join(s.Folder, k.file())
	report, err := load(path, k)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log().Warn("the stored fetch plan is damaged; measuring again", "file", path, "error", err)
		return nil
	}
	return report
}

func load(path string, k Key) (*Report, error) {
	data, err := smallfile.Read(path, mostBytes)
	if err != nil {
		return nil, err
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Version != version {
		return nil, fs.ErrNotExist // of another Heft
	}
	var in stored
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, err
	}
	if in.Key != k {
		return nil, fmt.Errorf("got a plan for %+v, want one for %+v", in.Key, k)
	}
	return &in.Report, nil
}

// Save keeps the report of a key.
func (s *Store) Save(k Key, r *Report) error {
	if s.Folder == "" {
		return nil
	}
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	text, err := json.MarshalIndent(stored{version, k, *r}, "", "  ")
	if err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	if err := atomicfile.WriteFile(filepath.Join(s.Folder, k.file()), append(text, '\n')); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	return nil
}

// Remeasure measures and keeps the report. A report that cannot be kept is logged and used.
func (s *Store) Remeasure(ctx context.Context, o Options) (*Report, error) {
	k := o.key()
	o.Usual = fetch.Default(k.Vendor)
	r, err := Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.Save(k, r); err != nil {
		s.log().Warn("the fetch plan cannot be kept; the next start measures again", "error", err)
	}
	return r, nil
}

// known has the reports that this process has used, by key, so that it measures once even if no
// folder keeps them.
var known struct {
	sync.Mutex
	reports map[Key]*Report
}

// Ensure makes the plan of this machine that of the process before it returns. It takes the stored
// plan, else the one that an earlier Ensure of this process found, else it measures for about
// Budget and stores the result. The default of the vendor stays if nothing can be measured or ctx
// ends. Concurrent calls measure once.
func (s *Store) Ensure(ctx context.Context, o Options) {
	known.Lock()
	defer known.Unlock()
	k := o.key()
	r := s.Load(k)
	if r == nil {
		r = s.knownOrMeasured(ctx, k, o)
	}
	if r == nil {
		return
	}
	if known.reports == nil {
		known.reports = map[Key]*Report{}
	}
	known.reports[k] = r
	fetch.Use(r.Plan)
}

// knownOrMeasured is called with known held. It returns nil where the default stays.
func (s *Store) knownOrMeasured(ctx context.Context, k Key, o Options) *Report {
	if r := known.reports[k]; r != nil {
		if err := s.Save(k, r); err != nil {
			s.log().Warn("the fetch plan cannot be kept; the next start measures again", "error", err)
		}
		return r
	}
	fetch.Use(fetch.Default(k.Vendor))
	if o.StoredOnly {
		return nil
	}
	r, err := s.Remeasure(ctx, o)
	if err != nil && !errors.Is(err, ErrUnable) && ctx.Err() == nil {
		s.log().Warn("cannot measure how weights are read fastest; the default stays", "error", err)
	}
	return r
}

// Start makes the plan of this machine that of the process: at once where the store has it, else
// the default of the vendor until a measurement in the background is done. The channel is closed
// then. Where nothing can be measured the default stays.
func (s *Store) Start(ctx context.Context, o Options) <-chan struct{} {
	done := make(chan struct{})
	k := o.key()
	if r := s.Load(k); r != nil {
		fetch.Use(r.Plan)
		close(done)
		return done
	}
	fetch.Use(fetch.Default(k.Vendor))
	if o.StoredOnly {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		r, err := s.Remeasure(ctx, o)
		switch {
		case err == nil:
			s.log().Debug("measured how weights are read fastest", "processor", k.Processor, "threads", k.Threads, "plan", r.Plan)
		case !errors.Is(err, ErrUnable) && ctx.Err() == nil:
			s.log().Warn("cannot measure how weights are read fastest; the default stays", "error", err)
		}
	}()
	return done
}

func (o *Options) key() Key {
	if o.fixed != nil {
		return *o.fixed
	}
	return KeyOf(o.Variant, o.Threads)
}
