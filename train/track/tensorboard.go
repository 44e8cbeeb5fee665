package track

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

// TensorBoard writes event files. Numbers become scalars and strings become texts. The numbers of a
// group become scalars of one tag in separate folders, which TensorBoard draws in one chart.
type TensorBoard struct {
	dir   string
	main  *eventFile
	parts map[string]*eventFile
	now   func() time.Time
}

var _ Tracker = (*TensorBoard)(nil)

// NewTensorBoard creates an event file in a folder, which it creates if needed. A run that is
// resumed adds a file; TensorBoard reads them as one.
func NewTensorBoard(dir string) (*TensorBoard, error) {
	t := &TensorBoard{dir: dir, parts: map[string]*eventFile{}, now: time.Now}
	var err error
	t.main, err = newEventFile(dir, t.now())
	return t, err
}

// Name returns the name of the tracker.
func (t *TensorBoard) Name() string { return "tensorboard" }

// Path returns the path of the event file.
func (t *TensorBoard) Path() string { return t.main.file.Name() }

// Configure writes hparams.yml, and an event file for the HPARAMS page in a folder named after the
// time.
func (t *TensorBoard) Configure(settings Values) error {
	if err := check(settings); err != nil {
		return err
	}
	flat := flatten(settings)
	var list []setting
	var yaml strings.Builder
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		s := setting{name, flat[name]}
		if v, ok := number(s.value); ok {
			s.value = v
		}
		yaml.WriteString(setting{name, flat[name]}.yaml())
		list = append(list, s)
	}
	wall := seconds(t.now())
	dir := filepath.Join(t.dir, strconv.FormatFloat(wall, 'f', -1, 64))
	f, err := newEventFile(dir, t.now())
	if err != nil {
		return err
	}
	defer f.file.Close()
	if err := atomicfile.WriteFile(filepath.Join(dir, "hparams.yml"), []byte(yaml.String())); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return f.write(summaryEvent(wall, 0, settingsValue(wall, list)), summaryEvent(wall, 0, endValue(wall)))
}

// Log writes the values as events.
func (t *TensorBoard) Log(values Values, step int) error {
	if err := check(values); err != nil {
		return err
	}
	wall := seconds(t.now())
	var events []message
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch v := values[name].(type) {
		case string:
			events = append(events, summaryEvent(wall, step, textValue(name, v)))
		case bool:
			events = append(events, summaryEvent(wall, step, scalar(name, float64(b2i(v)))))
		case map[string]float64:
			if err := t.group(name, v, wall, step); err != nil {
				return err
			}
		default:
			x, _ := number(v)
			events = append(events, summaryEvent(wall, step, scalar(name, x)))
		}
	}
	return t.main.write(events...)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// group writes each number to the event file of its folder.
func (t *TensorBoard) group(name string, parts map[string]float64, wall float64, step int) error {
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		key := strings.NewReplacer("/", "_", "\\", "_").Replace(name + "_" + part)
		f := t.parts[key]
		if f == nil {
			var err error
			if f, err = newEventFile(filepath.Join(t.dir, key), t.now()); err != nil {
				return err
			}
			t.parts[key] = f
		}
		if err := f.write(summaryEvent(wall, step, scalar(name, parts[part]))); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files.
func (t *TensorBoard) Close() error {
	err := t.main.file.Close()
	for _, f := range t.parts {
		if e := f.file.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// eventFile is open for appending.
type eventFile struct{ file *os.File }

// opened distinguishes the files that one process opens within a second.
var opened atomic.Int64

func newEventFile(dir string, now time.Time) (*eventFile, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("track: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), opened.Add(1)-1)
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("track: %w", err)
	}
	f := &eventFile{file}
	if err := f.write(versionEvent(seconds(now))); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// write appends events with one system call.
func (f *eventFile) write(events ...message) error {
	var b []byte
	for _, e := range events {
		b = appendRecord(b, e)
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := f.file.Write(b); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}
