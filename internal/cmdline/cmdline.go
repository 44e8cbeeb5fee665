// Package cmdline has the common parts of Heft's commands: the sources of their flags (the command
// line, HEFT_* variables, the YAML file of --config), their streams and their exit statuses. It
// knows no command.
package cmdline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/internal/spelling"
)

// Output is standard output, injected into the Run methods of commands.
type Output struct{ io.Writer }

// Diagnostics is standard error, injected likewise.
type Diagnostics struct{ io.Writer }

// The exit statuses.
const (
	statusDone   = 0
	statusFailed = 1
	statusMisuse = 2
)

// misuse is a mistake in the command line, found after parsing.
type misuse struct{ err error }

func (e misuse) Error() string { return e.err.Error() }
func (e misuse) Unwrap() error { return e.err }

// Misuse marks err as a mistake in the command line.
func Misuse(err error) error { return misuse{err} }

// Misusef returns a mistake in the command line.
func Misusef(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// stopped is the error of a command that ends with a status and no text.
type stopped struct{ status int }

func (e stopped) Error() string { return fmt.Sprintf("stopped, status %d", e.status) }

// Stopped returns the error of a command that a signal stopped in order, after it printed its
// result. [Program.Run] then returns the status that shells give a process that the signal ended:
// 128 plus its number, 130 for SIGINT and 143 for SIGTERM.
func Stopped(by syscall.Signal) error { return stopped{128 + int(by)} }

// Unprinted returns an error with exit status 1 that [Program.Run] does not print, for a command
// whose standard error is not read.
func Unprinted() error { return stopped{statusFailed} }

// Program is a command line.
type Program struct {
	Name, Description string
	Version           string // what a flag of type kong.VersionFlag prints
	// Hints maps flags that users of other programs try, such as -m, to what to do instead. Keys of the file of
	// --config and flags written with underscores have the hints of their flags with dashes.
	Hints map[string]string
	// Grammar is a pointer to a struct with kong's tags, which is filled. Its commands have
	// Run methods, that may ask for a context.Context, Output and Diagnostics.
	Grammar any
	// LookupEnv is os.LookupEnv. A variable that it has wins over the file of --config.
	LookupEnv func(name string) (string, bool)
}

// Run parses args and runs the command that they name. It returns the exit status: 2 for a
// mistake in the command line, 128 plus the signal's number for a command that was [Stopped], 1
// for any other error, which is written to stderr.
func (p Program) Run(args []string, stdout, stderr io.Writer) int {
	exit := -1
	from := &sources{lookup: p.LookupEnv, hints: p.Hints}
	texts := &checked{Writer: stdout}
	parser, err := kong.New(p.Grammar,
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Configuration(from.yaml),
		kong.DefaultEnvars("HEFT"),
		kong.Writers(texts, stderr),
		kong.Exit(func(status int) { exit = status }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
		kong.Bind(Output{stdout}, Diagnostics{stderr}),
		kong.Vars{"version": p.Version},
	)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return statusFailed
	}
	from.app = parser.Model
	args, err = helped(parser, args)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v (see %s --help)\n", p.Name, err, p.Name)
		return statusMisuse
	}
	parsed, err := parser.Parse(args)
	if err != nil && strings.Contains(err.Error(), "(short flag)") { // --save-steps -1
		parsed, err = parser.Parse(joinNegative(args))
	}
	if texts.err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, texts.err)
		return statusFailed
	}
	if exit >= 0 {
		return exit // --help
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", p.Name, p.explain(parser, from, args, err))
		return statusMisuse
	}
	if err := parsed.Run(); err != nil {
		var s stopped
		if errors.As(err, &s) {
			return s.status
		}
		if errors.As(err, new(misuse)) {
			fmt.Fprintf(stderr, "%s: %s%v\n", p.Name, from.origin(cmp.Or(parsed.Selected(), parser.Model.Node), args, err.Error()), errtext.Below(p.Name, err))
			return statusMisuse
		}
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, errtext.Below(p.Name, err))
		return statusFailed
	}
	return statusDone
}

// helped returns args with --help for a first word help, as in "help plan".
func helped(parser *kong.Kong, args []string) ([]string, error) {
	if len(args) == 0 || args[0] != "help" {
		return args, nil
	}
	for _, c := range parser.Model.Children {
		if len(args) == 1 || c.Name == args[1] || slices.Contains(c.Aliases, args[1]) {
			return append(slices.Clone(args[1:]), "--help"), nil
		}
	}
	return nil, fmt.Errorf("help: unknown command %q, want one of %s", args[1], strings.Join(commandsOf(parser), ", "))
}

// checked keeps the first error of writes, of which kong ignores some.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.err = cmp.Or(c.err, err)
	return n, err
}

var negative = regexp.MustCompile(`^-[0-9.]`)

// dashed is the name of a flag that has dashes between its words.
func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// joinNegative writes negative numbers that follow a flag as its value, so that they are not read as
// short flags.
func joinNegative(args []string) []string {
	var out []string
	for _, arg := range args {
		last := len(out) - 1
		if negative.MatchString(arg) && last >= 0 && strings.HasPrefix(out[last], "--") && !strings.Contains(out[last], "=") {
			out[last] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

// commandsOf are the names of a program's commands.
func commandsOf(parser *kong.Kong) []string {
	var names []string
	for _, c := range parser.Model.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// selected is the command whose arguments err is about, nil for none.
func selected(parser *kong.Kong, err error) *kong.Node {
	if e := (*kong.ParseError)(nil); errors.As(err, &e) && e.Context.Selected() != nil {
		return e.Context.Selected()
	}
	return parser.Model.DefaultCmd
}

// explain says what is wrong with a command line, and what to do instead.
func (p Program) explain(parser *kong.Kong, from *sources, args []string, err error) string {
	if strings.Contains(err.Error(), "unknown flag") {
		for _, arg := range args {
			flag, _, _ := strings.Cut(arg, "=")
			if hint, ok := p.Hints[dashed(flag)]; ok {
				return "unknown flag " + flag + ": " + hint
			}
		}
	}
	program := p.Name
	node := selected(parser, err)
	if node != nil {
		program += " " + node.Name
	} else if word, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok {
		word, closest, _ := strings.Cut(word, ", did you mean ")
		if closest != "" {
			return fmt.Sprintf("unknown command %q, did you mean %s", word, closest)
		}
		return fmt.Sprintf("unknown command %q, want one of %s", word, strings.Join(commandsOf(parser), ", "))
	}
	if closest := p.misspelled(parser, node, args, err); closest != "" {
		return fmt.Sprintf("unknown command %q, did you mean %q?", args[0], closest)
	}
	message := wanted(unopened(err).Error(), commandsOf(parser))
	return fmt.Sprintf("%s%s (see %s --help)", from.origin(cmp.Or(node, parser.Model.Node), args, message), message, program)
}

// misspelled returns the command that the first word may have meant, where err is about a second word and the program
// therefore read the first one as the argument of its default command: "pul ORG/NAME".
func (p Program) misspelled(parser *kong.Kong, node *kong.Node, args []string, err error) string {
	if node == nil || node != parser.Model.DefaultCmd || len(args) < 2 || !strings.HasPrefix(err.Error(), "unexpected argument ") {
		return ""
	}
	for _, closest := range spelling.Nearest(args[0], commandsOf(parser), 1) {
		if closest != args[0] {
			return closest
		}
	}
	return ""
}

// unopened names the flag of a file that kong opens: --config.
func unopened(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && strings.HasPrefix(err.Error(), "open ") {
		return fmt.Errorf("--config %s: %w", path.Path, path.Err)
	}
	return err
}

var (
	enumerated = regexp.MustCompile(`^(.+) must be one of (".*") but got (".*")$`)
	envar      = regexp.MustCompile(` \(from envar \w+=".*"\)$`) // sources.origin says it
	mistyped   = regexp.MustCompile(`^(.+): expected an? (?:valid )?(.+) but got (".*?")(?: \(.*\))?$`)
	notTime    = regexp.MustCompile(`^(.+): expected duration but got (".*?"): `)
	valueless  = regexp.MustCompile(`^(.+): (?:missing value, expecting ".*"|expected \w+ value but got "EOL" .*)$`)
	shortGuess = regexp.MustCompile(`^(unknown flag -\w), did you mean .*$`) // of a letter, any letter is near
	argument   = regexp.MustCompile(`^expected "<(\w+)>.*"$`)
	flagged    = regexp.MustCompile(`^(.+): expected \w+ value but got "(-.*?)" \(.* flag\); perhaps try .*$`)
)

// wanted says kong's message as got and want. commands are those of the program, of which kong
// names the first few.
func wanted(message string, commands []string) string {
	message = envar.ReplaceAllString(message, "")
	if m := enumerated.FindStringSubmatch(message); m != nil {
		values := strings.ReplaceAll(strings.TrimSuffix(strings.ReplaceAll(m[2], `"`, ""), ","), ",", ", ") // the last may be ""
		name := m[1]
		if argument, ok := strings.CutPrefix(name, "<"); ok {
			name = strings.ToUpper(strings.TrimSuffix(argument, ">"))
		}
		return fmt.Sprintf("%s: got %s, want one of %s", name, m[3], values)
	}
	if m := valueless.FindStringSubmatch(message); m != nil {
		return m[1] + ": a value is missing"
	}
	if m := shortGuess.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	if m := argument.FindStringSubmatch(message); m != nil {
		return "the argument " + strings.ToUpper(m[1]) + " is missing"
	}
	if m := flagged.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s: got the flag %s, want a value", m[1], m[2])
	}
	if m := notTime.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s: got %s, want a duration such as 30s", m[1], m[2])
	}
	if m := mistyped.FindStringSubmatch(message); m != nil {
		kind := m[2]
		switch {
		case strings.HasSuffix(kind, "bit int"):
			kind = "whole number"
		case strings.HasSuffix(kind, "bit uint"):
			kind = "whole number of at least 0"
		case strings.HasPrefix(kind, "float"):
			kind = "number"
		}
		return fmt.Sprintf("%s: got %s, want a %s", m[1], m[3], kind)
	}
	if word, ok := strings.CutPrefix(message, "unexpected argument "); ok {
		return fmt.Sprintf("got the argument %q, want none", word)
	}
	if strings.HasPrefix(message, "expected one of ") {
		return "a command is missing, want one of " + strings.Join(commands, ", ")
	}
	return message
}

// Count is a number with its noun: "1 thread", "2 threads".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
