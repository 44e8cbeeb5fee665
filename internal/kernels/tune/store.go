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
const version = 7

// mostBytes bounds what is read of a file; one has some 20 KiB.
const mostBytes = 64 << 10

// A stored is the content of a file.
type stored struct {
	Version int `json:"version"`
	Key
	Report
	Measured []measurement `json:"measured"` // what the report is made of
}

// A Store keeps reports in a folder, which it creates when needed. An empty Folder keeps none.
// Processes may share it: files are replaced atomically.
type Store struct {
	Folder string
	// Log gets a line where a file cannot be used or written; nil means slog's default.
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

// Load returns the report of a key, or nil if there is none or its file cannot be used or is of another
// version. It logs files that cannot be used.
func (s *Store) Load(k Key) *Report {
	if s.Folder == "" {
		return nil
	}
	path := filepath.Join(s.Folder, k.file())
	report, err := load(path, k)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log().Warn("the stored fetch plan cannot be used; measuring again", "file", path, "error", err)
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
	if n := len(in.Measured); n == 0 || n > settled {
		return nil, fmt.Errorf("got %d measurements, want 1 to %d", n, settled)
	}
	in.measured = in.Measured
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
	text, err := json.MarshalIndent(stored{version, k, *r, r.measured}, "", " ")
	if err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	if err := atomicfile.WriteFile(filepath.Join(s.Folder, k.file()), append(text, '\n')); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	return nil
}

// Remeasure makes as many measurements as settle a plan, in place of the stored ones, and keeps the
// report. A report that cannot be kept is logged and used.
func (s *Store) Remeasure(ctx context.Context, o Options) (r *Report, err error) {
	for range settled {
		if r, err = s.measure(ctx, o, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// measure adds a measurement to those of before, which may be nil, keeps the report and uses its plan.
func (s *Store) measure(ctx context.Context, o Options, before *Report) (*Report, error) {
	k := o.key()
	o.Usual = fetch.Default(k.Vendor)
	next, err := Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	r := before.with(next, o.Usual)
	fetch.Use(r.Plan)
	s.keep(k, r)
	return r, nil
}

func (s *Store) keep(k Key, r *Report) {
	if err := s.Save(k, r); err != nil {
		s.log().Warn("the fetch plan cannot be kept; the next start measures again", "error", err)
	}
}

// known has the reports that this process has used, by key, so that it measures once even if no
// folder keeps them.
var known struct {
	sync.Mutex
	reports map[Key]*Report
}

// Ensure makes the plan of this machine that of the process before it returns. It takes the plan that an
// earlier Ensure of this process found, else the stored one. If that is not yet of as many measurements as
// settle it, Ensure measures for about Budget, adds the result and stores it. The default of the vendor
// stays, and Ensure returns nil, if nothing is stored and nothing can be measured or ctx ends. Concurrent calls measure once.
func (s *Store) Ensure(ctx context.Context, o Options) *Report {
	known.Lock()
	defer known.Unlock()
	k := o.key()
	r := s.Load(k)
	switch found := known.reports[k]; {
	case r == nil && found != nil:
		r = found
		s.keep(k, r)
	case found == nil:
		r = s.improved(ctx, o, r)
	}
	if r == nil {
		return nil
	}
	if known.reports == nil {
		known.reports = map[Key]*Report{}
	}
	known.reports[k] = r
	fetch.Use(r.Plan)
	return r
}

// found is the report of a key that this process has used, or nil.
func found(k Key) *Report {
	known.Lock()
	defer known.Unlock()
	return known.reports[k]
}

// improved is before, or the default of the vendor in its place, with one measurement more unless before
// is settled. It returns nil where the default stays.
func (s *Store) improved(ctx context.Context, o Options, before *Report) *Report {
	s.use(before, o)
	if o.StoredOnly || before != nil && before.settled() {
		return before
	}
	r, err := s.measure(ctx, o, before)
	switch {
	case err == nil:
		s.log().Debug("measured how weights are read fastest", "processor", o.key().Processor, "threads", o.key().Threads, "starts", len(r.measured), "plan", r.Plan)
		return r
	case !errors.Is(err, ErrUnable) && ctx.Err() == nil:
		s.log().Warn("cannot measure how weights are read fastest; the plan stays", "error", err)
	}
	return before
}

// use makes the plan of r, or the default of the vendor without r, that of the process.
func (s *Store) use(r *Report, o Options) {
	plan := fetch.Default(o.key().Vendor)
	if r != nil {
		plan = r.Plan
	}
	fetch.Use(plan)
}

// Start makes the plan of this machine that of the process at once: the stored one, else the default of
// the vendor. Until the stored plan is settled, a measurement in the background then improves it, unless Ensure
// has measured in this process and stored it. The channel is closed when that is done, or at once.
func (s *Store) Start(ctx context.Context, o Options) <-chan struct{} {
	done := make(chan struct{})
	stored, before := s.Load(o.key()), found(o.key())
	r := stored
	if r == nil {
		r = before
	}
	s.use(r, o)
	if o.StoredOnly || r != nil && r.settled() || stored != nil && before != nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		s.improved(ctx, o, r)
	}()
	return done
}

func (o *Options) key() Key {
	if o.fixed != nil {
		return *o.fixed
	}
	return KeyOf(o.Variant, o.Threads)
}
