package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/repl"
)

// configCmd is train config.
type configCmd struct {
	File            string `name:"config-file" help:"Write to this file, YAML or .json, instead of Accelerate's default." placeholder:"FILE"`
	NumProcesses    int    `help:"Set the total number of ranks; 0 is one per machine." default:"0"`
	NumMachines     int    `help:"Set the number of machines." default:"1"`
	MachineRank     int    `help:"Set this machine's number, from 0." default:"0"`
	MainProcessIP   string `name:"main-process-ip" help:"Set the address of machine 0, with several machines." placeholder:"ADDRESS"`
	MainProcessPort int    `help:"Set the port of rank 0; 0 leaves it to train launch." default:"0"`
	MixedPrecision  string `help:"Set the precision of products: no, bf16 or fp16." enum:"no,bf16,fp16" default:"no"`
	ZeroStage       int    `help:"Split gradients and optimizer state as ZeRO's stage 1 or 2; 0 does not." default:"0"`
	Yes             bool   `help:"Do not ask, even on a terminal and without flags."`
	Force           bool   `help:"Replace an existing configuration."`
	Show            bool   `help:"Print the existing configuration and write nothing."`
}

var errNoHome = errors.New("no home folder for the configuration: set HOME or HF_HOME, or use --config-file FILE")

// Run writes the configuration that train launch reads, like accelerate config. On a terminal it
// asks for values if no flag sets one.
func (c *configCmd) Run(out cmdline.Output, diag cmdline.Diagnostics) error {
	if c.Show {
		return c.show(out)
	}
	path := c.File
	if path == "" {
		dir := configFolder()
		if dir == "" {
			return errNoHome
		}
		path = filepath.Join(dir, "default_config.yaml")
	}
	if _, err := os.Stat(path); err == nil && !c.Force {
		return cmdline.Misusef("%s exists; use --force to replace it", path)
	}
	given := *c
	given.File, given.Force = "", false
	if given == (configCmd{NumMachines: 1, MixedPrecision: "no"}) && repl.IsTerminal(os.Stdin) {
		if err := c.ask(os.Stdin, diag); err != nil {
			return err
		}
	}
	found, err := c.config()
	if err != nil {
		return err
	}
	b, err := found.encode(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(path, b); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "The configuration is in %s.\n", path)
	return err
}

func (c *configCmd) show(out io.Writer) error {
	found, where, err := findConfig(c.File)
	if err != nil {
		return err
	}
	if found == nil {
		if configFolder() == "" {
			return errNoHome
		}
		return fmt.Errorf("no configuration in %s: make one with train config", configFolder())
	}
	b, err := found.encode(where)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s", b)
	}
	return err
}

// config returns the configuration of the flags.
func (c *configCmd) config() (config, error) {
	if c.NumProcesses == 0 {
		c.NumProcesses = c.NumMachines
	}
	switch {
	case c.NumProcesses < 1:
		return nil, cmdline.Misusef("got --num-processes %d, want at least 1", c.NumProcesses)
	case c.NumMachines < 1:
		return nil, cmdline.Misusef("got --num-machines %d, want at least 1", c.NumMachines)
	case c.NumProcesses%c.NumMachines != 0:
		return nil, cmdline.Misusef("got --num-processes %d and --num-machines %d, want a multiple of the machines", c.NumProcesses, c.NumMachines)
	case c.MachineRank < 0 || c.MachineRank >= c.NumMachines:
		return nil, cmdline.Misusef("got --machine-rank %d, want 0 to %d", c.MachineRank, c.NumMachines-1)
	case c.NumMachines > 1 && c.MainProcessIP == "":
		return nil, cmdline.Misusef("got --num-machines %d without --main-process-ip, want the address of machine 0", c.NumMachines)
	case c.MainProcessPort < 0 || c.MainProcessPort > 65535:
		return nil, cmdline.Misusef("got --main-process-port %d, want 0 to 65535", c.MainProcessPort)
	case c.ZeroStage < 0 || c.ZeroStage > 2:
		return nil, cmdline.Misusef("got --zero-stage %d, want 0, 1 or 2", c.ZeroStage)
	}
	found := basicConfig(c.NumProcesses, c.MixedPrecision)
	if c.NumMachines > 1 {
		found["num_machines"], found["machine_rank"], found["main_process_ip"] = c.NumMachines, c.MachineRank, c.MainProcessIP
	}
	if c.MainProcessPort > 0 {
		found["main_process_port"] = c.MainProcessPort
	}
	if c.ZeroStage > 0 {
		found["distributed_type"] = "DEEPSPEED"
		found["deepspeed_config"] = map[string]any{"zero_stage": c.ZeroStage}
	}
	return found, nil
}

// ask reads the values from a terminal. An empty line selects the default.
func (c *configCmd) ask(in io.Reader, out io.Writer) error {
	q := questions{in: bufio.NewReader(in), out: out}
	c.NumMachines = q.number("How many machines train together?", 1, 1, 1<<16)
	if c.NumMachines > 1 {
		c.MachineRank = q.number("Which of them is this one?", 0, 0, c.NumMachines-1)
		c.MainProcessIP = q.text("What is the address of machine 0?", "", nil)
		c.MainProcessPort = q.number("Which port does it listen at?", 29500, 1, 65535)
	}
	c.NumProcesses = c.NumMachines * q.number("How many ranks, one process each, does a machine run?", 1, 1, 1<<16)
	c.MixedPrecision = q.text("Which precision do products have?", "no", []string{"no", "bf16", "fp16"})
	if c.NumProcesses > 1 {
		c.ZeroStage = q.number("Which stage of ZeRO splits gradients and optimizer state between ranks? 0 is none.", 0, 0, 2)
	}
	return q.err
}

// questions asks for values, and repeats a question until the answer is valid. After an error it
// returns defaults.
type questions struct {
	in  *bufio.Reader
	out io.Writer
	err error
}

// text asks for one of the options, or for any text if options is empty.
func (q *questions) text(question, missing string, options []string) string {
	hint := strings.Join(options, ", ")
	if missing != "" && hint != "" {
		hint += "; "
	}
	if missing != "" {
		hint += "default " + missing
	}
	for q.err == nil {
		if hint == "" {
			fmt.Fprintf(q.out, "%s ", question)
		} else {
			fmt.Fprintf(q.out, "%s [%s] ", question, hint)
		}
		line, err := q.in.ReadString('\n')
		line = strings.TrimSpace(line)
		switch {
		case err != nil && line == "":
			if q.err = err; errors.Is(err, io.EOF) {
				q.err = fmt.Errorf("the input ended: nothing was written: %w", fs.ErrClosed)
			}
		case line == "" && missing != "":
			return missing
		case line != "" && (options == nil || slices.Contains(options, line)):
			return line
		}
	}
	return missing
}

// number asks for an integer from least to most.
func (q *questions) number(question string, missing, least, most int) int {
	for q.err == nil {
		n, err := strconv.Atoi(q.text(question, strconv.Itoa(missing), nil))
		if err == nil && n >= least && n <= most {
			return n
		}
		if q.err == nil {
			fmt.Fprintf(q.out, "Give a number from %d to %d.\n", least, most)
		}
	}
	return missing
}
