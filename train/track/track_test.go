package track

import (
	"bytes"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOpenKnowsItsNames(t *testing.T) {
	for _, name := range Names() {
		tr, err := Open(name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if tr.Name() != name {
			t.Errorf("%s is called %s", name, tr.Name())
		}
		for _, err := range []error{tr.Configure(Values{"lr": 0.1}), tr.Log(Values{"loss": float32(1)}, 1), tr.Close()} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := Open("wandb", t.TempDir()); err == nil || !strings.Contains(err.Error(), `got tracker "wandb"`) {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestJSONLGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "m.jsonl")
	for i := range 2 {
		j, err := NewJSONL(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Log(Values{"loss": math.NaN(), "g": map[string]float64{"x": 2}}, i); err != nil {
			t.Fatal(err)
		}
		if _, err := j.file.WriteString(`{"cut`); err != nil { // as a killed run leaves it
			t.Fatal(err)
		}
		j.Close()
	}
	got, _ := os.ReadFile(path)
	want := `{"g":{"x":2},"loss":"NaN","step":0}` + "\n" + `{"cut` + "\n" + `{"g":{"x":2},"loss":"NaN","step":1}` + "\n" + `{"cut`
	if string(got) != want {
		t.Errorf("the file is\n%s, want\n%s", got, want)
	}
}

func TestCSVGrowsColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.csv")
	c, err := NewCSV(path)
	if err != nil {
		t.Fatal(err)
	}
	log := func(step int, v Values) {
		t.Helper()
		if err := c.Log(v, step); err != nil {
			t.Fatal(err)
		}
	}
	log(1, Values{"loss": 2.5})
	log(2, Values{"loss": 2, "eval_loss": 3, "note": "a,b"})
	c.Close()
	if c, err = NewCSV(path); err != nil {
		t.Fatal(err)
	}
	log(3, Values{"eval_loss": 1.5, "g": map[string]float64{"x": 7}})
	c.Close()
	got, _ := os.ReadFile(path)
	want := "step,loss,eval_loss,note,g/x\n1,2.5,,,\n2,2,3,\"a,b\",\n3,,1.5,,7\n"
	if string(got) != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
	if _, err := NewCSV(writeFile(t, "a,b\n1,2\n")); err == nil {
		t.Error("a table of something else was taken")
	}
}

func writeFile(t *testing.T, s string) string {
	path := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   string
	}{
		{0, 10, 5, "0 2 4 6 8 10"},
		{0.13, 0.29, 4, "0.15 0.20 0.25"},
		{-1, 1, 4, "-1.0 -0.5 0 0.5 1.0"},
		{0, 5e6, 5, "0 1e+06 2e+06 3e+06 4e+06 5e+06"},
	} {
		f := frame{}
		if got := strings.Join(f.labels(ticks(c.lo, c.hi, c.n), false), " "); got != c.want {
			t.Errorf("ticks from %v to %v: %s, want %s", c.lo, c.hi, got, c.want)
		}
	}
	if ticks(math.NaN(), 1, 3) != nil || ticks(1, 1, 3) != nil {
		t.Error("ticks of nothing")
	}
}

func falling() Series {
	s := Series{Name: "loss"}
	for i := range 50 {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, 3*math.Exp(-float64(i)/15)+0.2)
	}
	s.Y[7] = math.NaN()
	return s
}

func TestDrawPNG(t *testing.T) {
	for name, curves := range map[string][]Series{"none": nil, "one": {falling()}, "two": {falling(), {Name: "eval_loss", X: []float64{10, 40}, Y: []float64{1, 0.5}}},
		"a point": {{X: []float64{1}, Y: []float64{2}}}, "not finite": {{X: []float64{1, 2}, Y: []float64{math.Inf(1), math.NaN()}}}} {
		var b bytes.Buffer
		if err := DrawPNG(&b, Plot{Title: "Loss of a run, 100% (ours)", XLabel: "step", YLabel: "nats"}, curves...); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		if img.Bounds().Dx() != 800 || img.Bounds().Dy() != 500 {
			t.Errorf("%s: an image of %v", name, img.Bounds())
		}
		blue := 0
		for y := range 500 {
			for x := range 800 {
				if r, g, b, _ := img.At(x, y).RGBA(); r>>8 == 0x1f && g>>8 == 0x6f && b>>8 == 0xd6 {
					blue++
				}
			}
		}
		if drawn := name == "one" || name == "two" || name == "a point"; drawn != (blue > 10) {
			t.Errorf("%s: %d pixels of the first curve", name, blue)
		}
	}
}

func TestEveryCharacterHasDots(t *testing.T) {
	for _, r := range characters {
		rows := glyph(r)
		if len(rows) != 5 {
			t.Errorf("%q has %d rows", r, len(rows))
		}
		for _, row := range rows {
			if len(row) != len(rows[0]) {
				t.Errorf("%q has rows of several widths: %q", r, rows)
			}
		}
	}
	if n := len([]rune(characters)); n != len(dots) {
		t.Errorf("%d characters, %d with dots", n, len(dots))
	}
}

func TestDrawText(t *testing.T) {
	var b strings.Builder
	s := Series{X: []float64{0, 1, 2, 3}, Y: []float64{3, 2, 1, 0}}
	if err := DrawText(&b, Plot{Width: 30, Height: 6, XLabel: "step"}, s); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\n"); len(lines) != 9 || !strings.Contains(lines[7], "0") || !strings.Contains(lines[7], "step") {
		t.Errorf("the curve is\n%s", b.String())
	}
	if err := DrawText(&b, Plot{Width: 1, Height: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestProgressLines(t *testing.T) {
	now := time.Unix(0, 0)
	clock := func() time.Time { return now }
	var terminal, plain strings.Builder
	bars := []*Progress{NewProgress(&terminal, ProgressOptions{Total: 100, Terminal: true, Now: clock, Width: 60}), NewProgress(&plain, ProgressOptions{Total: 100, Now: clock})}
	for _, p := range bars {
		now = time.Unix(0, 0)
		p.Begin(10)
		for i := 11; i <= 100; i++ {
			now = now.Add(500 * time.Millisecond)
			p.Update(i, 1/float64(i), 64)
		}
		p.Close()
	}
	if s := terminal.String(); !strings.Contains(s, "\r12/100 ━") || !strings.Contains(s, "128 tok/s 0:44 left") || !strings.HasSuffix(s, "\n") {
		t.Errorf("the terminal shows %q", s[:200])
	}
	lines := strings.Split(strings.TrimSpace(plain.String()), "\n")
	if len(lines) != 10 || lines[0] != "11/100  11% loss 0.0909 128 tok/s 0:45 left" || lines[9] != "100/100 100% loss 0.0100 128 tok/s 0:45" {
		t.Errorf("plain lines are\n%s", strings.Join(lines, "\n"))
	}
	if IsTerminal(&plain) {
		t.Error("a string is a terminal")
	}
}
