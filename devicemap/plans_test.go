package devicemap

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests of testdata/plans print into their files")

// TestPlans runs the files of testdata/plans. A file is a list of cases
//
//	command name=value name=value
//	input
//	----
//	output
//
// with an empty line between them; an output with empty lines stands between two lines
// of ---- each. The commands:
//
//	model name=NAME             a config.json; its plans come after it
//	tree name=NAME no-split=C   a tree as JSON
//	plan model=NAME map=MAP     one budget a line: DEVICE LIMIT [kv=…] [activations=…] [staging=…]
//	render model=NAME width=N   the same, as a picture
//	max-memory, map             a text to parse
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no files of plans", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runPlans(t, file) })
	}
}

func runPlans(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]*meta.Model{}
	var out strings.Builder
	rest := string(data)
	for {
		input, want, after, ok := nextCase(rest)
		if !ok {
			out.WriteString(rest)
			break
		}
		rest = after
		got := strings.TrimRight(runPlan(models, input), "\n") + "\n"
		if got != want && !*rewrite {
			t.Errorf("%s\n---- got\n%s---- want\n%s", input, got, want)
		}
		if strings.Contains(got, "\n\n") {
			got = "----\n" + got + "----\n----\n"
		}
		out.WriteString(input + "\n----\n" + got)
		if rest != "" {
			out.WriteString("\n")
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// nextCase takes the first case off a file's text.
func nextCase(text string) (input, want, rest string, ok bool) {
	input, text, ok = strings.Cut(text, "\n----\n")
	if long, found := strings.CutPrefix(text, "----\n"); found {
		want, rest, _ = strings.Cut(long, "----\n----\n")
		return input, want, strings.TrimPrefix(rest, "\n"), ok
	}
	if rest, found := strings.CutPrefix(text, "\n"); found {
		return input, "", rest, ok // a new case that has no output yet
	}
	want, rest, found := strings.Cut(text, "\n\n")
	if found {
		want += "\n"
	}
	return input, want, rest, ok
}

// runPlan runs one case and returns its output.
func runPlan(models map[string]*meta.Model, text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "#") && (line != "" || lines != nil) {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		return "no command"
	}
	fields := strings.Fields(lines[0])
	args := map[string]string{}
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		args[name] = value
	}
	input := strings.Join(lines[1:], "\n")
	switch fields[0] {
	case "model", "tree":
		return runModel(models, fields[0], args, input)
	case "plan", "render":
		plan, err := runSolve(models, args, lines[1:])
		if err != nil {
			return "error: " + err.Error()
		}
		if fields[0] == "plan" {
			text := plan.Explain()
			for _, w := range plan.Warnings {
				text += "warning: " + w + "\n"
			}
			return text
		}
		var b strings.Builder
		width := 72
		fmt.Sscan(args["width"], &width)
		if err := plan.Render(&b, false, width); err != nil {
			return err.Error()
		}
		return b.String()
	case "map":
		p, err := ParsePolicy(input)
		if err != nil {
			return "error: " + err.Error()
		}
		return strings.TrimSpace(fmt.Sprint(p.Kind, " ", p.Pins))
	case "max-memory":
		return runMaxMemory(input)
	}
	return "unknown command " + fields[0]
}

func runMaxMemory(input string) string {
	m, err := ParseMaxMemory(input)
	if err != nil {
		return "error: " + err.Error()
	}
	var b strings.Builder
	for _, m := range m {
		fmt.Fprintf(&b, "%s %.0f", m.Device, m.Bytes)
		if m.Warning != "" {
			fmt.Fprintf(&b, " (%s)", m.Warning)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func runModel(models map[string]*meta.Model, kind string, args map[string]string, input string) string {
	var model *meta.Model
	if kind == "tree" {
		root, err := meta.ReadTree([]byte(input))
		if err != nil {
			return "error: " + err.Error()
		}
		model = &meta.Model{Root: root}
		if class := args["no-split"]; class != "" {
			model.NoSplitClasses = []string{class}
		}
	} else {
		cfg, err := meta.ReadConfig([]byte(input))
		if err != nil {
			return "error: " + err.Error()
		}
		if model, err = meta.New(cfg, nil); err != nil {
			return "error: " + err.Error()
		}
	}
	models[args["name"]] = model
	sizes, err := ComputeModuleSizes(model.Root, "", nil)
	if err != nil {
		return "error: " + err.Error()
	}
	layer, paths := sizes.LargestLayer(model.NoSplitClasses)
	return fmt.Sprintf("%s, largest layer %s (%s)", FormatSize(int64(sizes.Total())), FormatSize(int64(layer)), paths[0])
}

func runSolve(models map[string]*meta.Model, args map[string]string, lines []string) (Plan, error) {
	model := models[args["model"]]
	if model == nil {
		return Plan{}, fmt.Errorf("no model %q", args["model"])
	}
	policy := Policy{}
	if text := args["map"]; text != "" {
		var err error
		if policy, err = ParsePolicy(text); err != nil {
			return Plan{}, err
		}
	}
	policy.SequenceKV = int64(size(args["sequence-kv"]))
	policy.DType = args["dtype"]
	var budgets []Budget
	for _, line := range lines {
		fields := strings.Fields(line)
		b := Budget{Device: Device(fields[0]), Limit: size(fields[1])}
		for _, f := range fields[2:] {
			name, value, _ := strings.Cut(f, "=")
			switch name {
			case "kv":
				b.KV = size(value)
			case "activations":
				b.Activations = size(value)
			case "staging":
				b.Staging = size(value)
			}
		}
		budgets = append(budgets, b)
	}
	return Solve(model, budgets, policy)
}

// size reads "12KiB"; other texts are 0.
func size(text string) int64 {
	n, _ := ParseSize(text)
	return n
}
