package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

type grammar struct {
	Count  countCmd `cmd:"" help:"Count."`
	Colour struct{} `cmd:"" help:"Show colours."`
	Paint  struct {
		Wall string `arg:""`
	} `cmd:"" help:"Paint a wall."`
}

type countCmd struct {
	N     int     `help:"Count to N."`
	Rate  float64 `help:"Count so many per second."`
	Shape string  `help:"Draw this shape." enum:"circle,square" default:"circle"`
	Side  string  `help:"Begin on this side." enum:"left,right," default:""`
	Seed  uint64  `help:"Seed the numbers."`
}

// TestUsageErrorsSayWhatTheyGotAndWant: kong's messages become "got X, want Y", and name the command
// whose help lists the flags.
func TestUsageErrorsSayWhatTheyGotAndWant(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "p: a command is missing, want one of count, colour, paint (see p --help)",
		"zzz":                  `p: unknown command "zzz", want one of count, colour, paint`,
		"cont":                 `p: unknown command "cont", did you mean "count"?`,
		"help zzz":             `p: help: unknown command "zzz", want one of count, colour, paint (see p --help)`,
		"count --n x":          `p: --n: got "x", want a whole number (see p count --help)`,
		"count --rate x":       `p: --rate: got "x", want a number (see p count --help)`,
		"count --shape x":      `p: --shape: got "x", want one of circle, square (see p count --help)`,
		"count --side x":       `p: --side: got "x", want one of left, right (see p count --help)`,
		"count --seed -1":      `p: --seed: got "-1", want a whole number of at least 0 (see p count --help)`,
		"colour blue":          `p: got the argument "blue", want none (see p colour --help)`,
		"count --width 3":      "p: unknown flag --width (see p count --help)",
		"count --height=3 --n": "p: unknown flag --height: use --n",
		"count -x":             "p: unknown flag -x (see p count --help)", // guessed -h
		"paint":                "p: the argument WALL is missing (see p paint --help)",
	} {
		var out, errs bytes.Buffer
		p := Program{Name: "p", Grammar: new(grammar), LookupEnv: os.LookupEnv, Hints: map[string]string{"--height": "use --n"}}
		if status := p.Run(strings.Fields(args), &out, &errs); status != 2 {
			t.Errorf("p %s: status %d, want 2", args, status)
		}
		if got := strings.TrimSpace(errs.String()); !strings.HasSuffix(got, want) && got != want {
			t.Errorf("p %s: got %q, want %q", args, got, want)
		}
	}
}

// TestAMisspelledCommandWithAnArgument: "pul ORG/NAME" was read as the default command with one argument too many.
func TestAMisspelledCommandWithAnArgument(t *testing.T) {
	for args, want := range map[string]string{
		"pul x":    `p: unknown command "pul", did you mean "pull"?`,
		"wall x":   `p: got the argument "x", want none (see p run --help)`,
		"run a b":  `p: got the argument "b", want none (see p run --help)`,
		"pull a b": `p: got the argument "b", want none (see p pull --help)`,
	} {
		var out, errs bytes.Buffer
		p := Program{Name: "p", LookupEnv: os.LookupEnv, Grammar: &struct {
			Run struct {
				M string `arg:"" optional:""`
			} `cmd:"" default:"withargs"`
			Pull struct {
				M string `arg:"" optional:""`
			} `cmd:""`
		}{}}
		if status := p.Run(strings.Fields(args), &out, &errs); status != 2 || strings.TrimSpace(errs.String()) != want {
			t.Errorf("p %s: status %d, %q, want %q", args, status, &errs, want)
		}
	}
}

// fullDisk is an output whose disk is full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// TestTextsThatCannotBeWrittenFail: --version ended with status 0, and --help with 2 and advice on usage.
func TestTextsThatCannotBeWrittenFail(t *testing.T) {
	for _, arg := range []string{"--version", "--help"} {
		var errs bytes.Buffer
		p := Program{Name: "p", Version: "1", Grammar: &struct {
			grammar
			Version kong.VersionFlag
		}{}, LookupEnv: os.LookupEnv}
		if status := p.Run([]string{arg}, fullDisk{}, &errs); status != 1 || errs.String() != "p: the disk is full\n" {
			t.Errorf("%s: status %d, %q", arg, status, &errs)
		}
	}
}

// TestCount: one thread, two threads.
func TestCount(t *testing.T) {
	if got := Count(1, "thread") + ", " + Count(2, "thread"); got != "1 thread, 2 threads" {
		t.Errorf("got %q", got)
	}
}

type sourcesCmd struct {
	Config kong.ConfigFlag `help:"Read flags from a file."`
	N      int             `help:"Count to N."`
	Shape  string          `help:"Draw this shape." enum:"circle,square" default:"circle"`
	Wait   time.Duration   `help:"Wait this long."`
	List   []string        `help:"Draw these."`
}

// Run prints the values and rejects an N of 7.
func (c sourcesCmd) Run(out Output) error {
	if c.N == 7 {
		return Misusef("--n 7: it is not 7")
	}
	_, err := fmt.Fprint(out, c.N, c.Shape)
	return err
}

// TestTheEnvironmentWinsOverTheFileOfConfig, and the command line over both. The file won.
func TestTheEnvironmentWinsOverTheFileOfConfig(t *testing.T) {
	for args, want := range map[string]string{"": "2square", "--n 1": "1square", "--n=1 --shape circle": "1circle"} {
		if out, status := runSources(t, "n: 3\nshape: square\n", map[string]string{"HEFT_N": "2"}, args); out != want || status != 0 {
			t.Errorf("p %s: got %q, status %d; want %q", args, out, status, want)
		}
	}
}

// TestAWrongValueNamesTheVariableOrTheFileThatHasIt: the user has not typed the flag.
func TestAWrongValueNamesTheVariableOrTheFileThatHasIt(t *testing.T) {
	for _, c := range []struct {
		file, variable, args, want string
	}{
		{"n: x\n", "", "", `FILE: --n: got "x", want a whole number (see p --help)`},
		{"n: [1, 2]\n", "", "", `FILE: --n: got "1,2", want a whole number (see p --help)`},
		{"n: 7\n", "", "", "FILE: --n 7: it is not 7"},
		{"- n: 2\n", "", "", `FILE: got a list or a single value, want a line such as "max-memory: cpu=30GiB" for each flag (see p --help)`},
		{"n: 2\n", "x", "", `HEFT_N: --n: got "x", want a whole number (see p --help)`},
		{"", "7", "", "HEFT_N: --n 7: it is not 7"},
		{"shape: x\n", "", "", "FILE: --shape: got \"x\", want one of circle, square (see p --help)"},
		{"n: 2\n", "3", "--n 7", "--n 7: it is not 7"},
		{"n: 2\n", "3", "--n=x", `--n: got "x", want a whole number (see p --help)`},
		{"wait: x\n", "", "", `FILE: --wait: got "x", want a duration such as 30s (see p --help)`},
	} {
		environment := map[string]string{}
		if c.variable != "" {
			environment["HEFT_N"] = c.variable
		}
		out, status := runSources(t, c.file, environment, c.args)
		if want := "p: " + c.want + "\n"; out != want || status != 2 {
			t.Errorf("file %q, HEFT_N=%s, p %s: status %d, got %q, want %q", c.file, c.variable, c.args, status, out, want)
		}
	}
}

// TestAFileOfConfigThatCannotBeReadIsNamedByItsFlag: the error was "open FILE: no such file or directory".
func TestAFileOfConfigThatCannotBeReadIsNamedByItsFlag(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.yaml")
	for path, want := range map[string]string{none: ": no such file or directory", dir: ": got a folder, want a YAML file"} {
		var out bytes.Buffer
		p := Program{Name: "p", Grammar: new(sourcesCmd), LookupEnv: os.LookupEnv}
		status := p.Run([]string{"--config", path}, &out, &out)
		if want := "p: --config " + path + want + " (see p --help)\n"; status != 2 || out.String() != want {
			t.Errorf("status %d, got %q, want %q", status, out.String(), want)
		}
	}
}

// TestAFlagWithoutAValueSaysSo: the error was kong's: expected int value but got "EOL" (<EOL>).
func TestAFlagWithoutAValueSaysSo(t *testing.T) {
	for _, flag := range []string{"--n", "--shape", "--wait", "--list"} {
		for args, want := range map[string]string{flag: "a value is missing", flag + " --n": "got the flag --n, want a value", flag + " -h": "got the flag -h, want a value"} {
			if flag == "--list" && args != flag {
				continue // kong takes the flag for an element of the list
			}
			if out, status := runSources(t, "", nil, args); status != 2 || out != "p: "+flag+": "+want+" (see p --help)\n" {
				t.Errorf("p %s: status %d, got %q, want %q", args, status, out, want)
			}
		}
	}
}

// runSources runs a program with a file and an environment. Its output calls the file FILE.
func runSources(t *testing.T, file string, environment map[string]string, args string) (out string, status int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range environment {
		t.Setenv(name, value)
		defer os.Unsetenv(name)
	}
	var b bytes.Buffer
	p := Program{Name: "p", Grammar: new(sourcesCmd), LookupEnv: os.LookupEnv}
	status = p.Run(append([]string{"--config", path}, strings.Fields(args)...), &b, &b)
	return strings.ReplaceAll(b.String(), path, "FILE"), status
}

// TestKeysOfOtherProgramsSayWhatToUse: the file was refused at its first unknown key, without what to use.
func TestKeysOfOtherProgramsSayWhatToUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte("n: 1\nrow_height: 2\nwhat: 3\nheight: 4\nzeal: 5\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	p := Program{Name: "p", Grammar: new(sourcesCmd), LookupEnv: os.LookupEnv, Hints: map[string]string{"--height": "use --n", "--row-height": "use --n"}}
	if status := p.Run([]string{"--config", path}, &out, &errs); status != 2 {
		t.Errorf("status %d, want 2", status)
	}
	want := strings.ReplaceAll("p: FILE: height, row_height are not flags of p: use --n\nFILE: what, zeal are not flags of p (see p --help)", "FILE", path)
	if got := strings.TrimSpace(errs.String()); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
