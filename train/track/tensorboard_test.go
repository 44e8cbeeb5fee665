package track

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

func TestTensorBoardFiles(t *testing.T) {
	dir := t.TempDir()
	tb, err := NewTensorBoard(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tb.Configure(Values{"epochs": 2, "flag": true, "lr": 0.1, "name": "x", "note": "a: b"}); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		err := tb.Log(Values{"loss": 1 / float64(step+1), "note": "hello", "multi": map[string]float64{"a": 1, "b": math.Inf(1)}}, step)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tb.Log(Values{"bad": []int{1}}, 3); err == nil || !strings.Contains(err.Error(), "bad: got a []int") {
		t.Errorf("a list as a value: %v", err)
	}
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	for pattern, records := range map[string]int{"events.out.tfevents.*": 7, "multi_a/events.out.tfevents.*": 4, "multi_b/events.out.tfevents.*": 4, "[0-9]*/events.out.tfevents.*": 3} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(files) != 1 {
			t.Fatalf("%s: files %q", pattern, files)
		}
		b, _ := os.ReadFile(files[0])
		r, n := bytes.NewReader(b), 0
		for {
			_, err := readRecord(r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != records {
			t.Errorf("%s: %d records, want %d", pattern, n, records)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "[0-9]*/hparams.yml"))
	if len(files) != 1 {
		t.Fatalf("settings: files %q", files)
	}
	if b, _ := os.ReadFile(files[0]); string(b) != "epochs: 2\nflag: true\nlr: 0.1\nname: x\nnote: \"a: b\"\n" {
		t.Errorf("settings are %s", b)
	}
}

// TestTensorBoardReadsOurs gives our files to the real TensorBoard.
func TestTensorBoardReadsOurs(t *testing.T) {
	python := os.Getenv("HEFT_PYTHON")
	testenv.Need(t, "python", python != "", "set HEFT_PYTHON to a Python with tensorboard")
	dir := t.TempDir()
	tb, err := NewTensorBoard(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tb.Configure(Values{"lr": 0.5, "flag": true, "name": "x y"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{0, 1, 300} {
		if err := tb.Log(Values{"train/loss": 2.5 / float64(step+1), "note": "step", "ends": map[string]float64{"a": 1}}, step); err != nil {
			t.Fatal(err)
		}
	}
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, filepath.Join(golden.Module(t), "scripts", "check-tensorboard.py"), dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got map[string]struct {
		Scalars  map[string][][2]float64
		Texts    map[string][][2]any
		Settings map[string]any
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if want := [][2]float64{{0, 2.5}, {1, 1.25}, {300, float64(float32(2.5 / 301))}}; !reflect.DeepEqual(got["."].Scalars["train/loss"], want) {
		t.Errorf("scalars are %v, want %v", got["."].Scalars, want)
	}
	if want := [][2]any{{0.0, "step"}, {1.0, "step"}, {300.0, "step"}}; !reflect.DeepEqual(got["."].Texts["note/text_summary"], want) {
		t.Errorf("texts are %v, want %v", got["."].Texts, want)
	}
	if want := [][2]float64{{0, 1}, {1, 1}, {300, 1}}; !reflect.DeepEqual(got["ends_a"].Scalars["ends"], want) {
		t.Errorf("the group's scalars are %v, want %v", got["ends_a"].Scalars, want)
	}
	for folder, run := range got {
		want := map[string]any{}
		if strings.ContainsAny(folder[:1], "123456789") {
			want = map[string]any{"lr": 0.5, "flag": true, "name": "x y", "status": 1.0}
		}
		if !reflect.DeepEqual(run.Settings, want) {
			t.Errorf("the settings in %s are %v, want %v", folder, run.Settings, want)
		}
	}
}

// settingsOf reads the lines of an hparams.yml.
func settingsOf(t *testing.T, text string) Values {
	t.Helper()
	settings := Values{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		settings[name] = v
	}
	return settings
}

// TestGoldenTrackerFiles logs the values that the reference's tracker got: numbers, a text, a
// group. The files have its names, but for times and hosts, and the settings its form.
func TestGoldenTrackerFiles(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/checkpoint/tensorboard_tracker", n) })
	var want struct {
		Tracker struct {
			Files    []string
			Settings string `json:"hparams.yml"`
		} `json:"tensorboard_tracker"`
	}
	golden.JSON(t, golden.Path(t, "train/checkpoint/semantics.json"), &want)
	if len(want.Tracker.Files) == 0 {
		return
	}
	n++
	root := t.TempDir()
	run, _, _ := strings.Cut(want.Tracker.Files[0], "/")
	tb, err := NewTensorBoard(filepath.Join(root, run))
	if err != nil {
		t.Fatal(err)
	}
	settings := settingsOf(t, want.Tracker.Settings)
	group, groups := map[string]float64{}, regexp.MustCompile(`/([a-z]+)_([a-z]+)/events`)
	name := "multi"
	for _, f := range want.Tracker.Files {
		if m := groups.FindStringSubmatch(f); m != nil {
			name, group[m[2]] = m[1], 1
		}
	}
	for _, err := range []error{tb.Configure(settings), tb.Log(Values{"loss": 1, "note": "hello", name: group}, 0), tb.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for _, f := range want.Tracker.Files {
		pattern := strings.NewReplacer("<unix time float>", "[0-9]*", "<...>", "*").Replace(f)
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		if len(files) != 1 {
			t.Errorf("%s: there are %q", f, files)
		}
		found += len(files)
		if strings.HasSuffix(f, "hparams.yml") && len(files) == 1 {
			if b, _ := os.ReadFile(files[0]); string(b) != want.Tracker.Settings {
				t.Errorf("the settings are %q, want %q", b, want.Tracker.Settings)
			}
		}
	}
	all := 0
	_ = filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all++
		}
		return err
	})
	if all != found {
		t.Errorf("%d files, want %d", all, found)
	}
}
