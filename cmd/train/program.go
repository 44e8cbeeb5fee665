package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/collective/tcp"
	"github.com/heftai/heft/train/finetune"
)

// worldFlags configure which ranks run where.
type worldFlags struct {
	File            string `name:"config-file" help:"Use this configuration file instead of Accelerate's default." placeholder:"FILE"`
	NprocPerNode    int    `help:"Start this many ranks on each machine." default:"0"`
	NumMachines     int    `help:"Set the number of machines; 0 uses the configuration's, or 1." default:"0"`
	MachineRank     int    `help:"Set this machine's number, from 0." default:"0"`
	MainProcessIP   string `name:"main-process-ip" help:"Set the address of machine 0; the default is 127.0.0.1." placeholder:"ADDRESS"`
	MainProcessPort int    `help:"Set the port of rank 0; 0 picks a free one, or 29500 with several machines." default:"0"`
}

// programCmd is train launch PROGRAM ARGS…. It runs one process for each rank of this machine.
type programCmd struct {
	worldFlags
	NumProcesses int      `help:"Start this many ranks on all machines; the default is the configuration's, or 1."`
	Program      []string `arg:"" passthrough:"" help:"Run this program, folder of Go files, or go run PACKAGE."`
}

// launchFlags are the flags of train launch that are not passed to the ranks. The value reports
// whether a flag takes no value.
var launchFlags = sync.OnceValue(func() map[string]bool {
	flags := map[string]bool{}
	for _, group := range kong.Must(new(programCmd)).Model.AllFlags(false) {
		for _, f := range group {
			for _, name := range append([]string{f.Name}, f.Aliases...) {
				flags["--"+name] = f.IsBool()
			}
		}
	}
	delete(flags, "--help")
	return flags
})

// launchFlag returns how many of args are one flag of train launch and its value. It returns 0 if
// args begin with anything else.
func launchFlag(args []string) int {
	name, _, has := strings.Cut(args[0], "=")
	alone, ok := launchFlags()[dashed(name)]
	switch {
	case !ok:
		return 0
	case has || alone:
		return 1
	}
	return min(2, len(args))
}

// programArgs returns the arguments of train launch with dashes in the names of its flags, if they
// name a program rather than a run of train itself.
func programArgs(args []string) ([]string, bool) {
	at := 0
	for at < len(args) {
		n := launchFlag(args[at:])
		if n == 0 {
			break
		}
		at += n
	}
	if at+1 < len(args) && args[at] == "--" { // allowed before the program, as in torchrun
		return append(allDashed(args[:at]), args[at+1:]...), true
	}
	program := at < len(args) && !strings.HasPrefix(args[at], "-") && args[at] != "run"
	return append(allDashed(args[:at]), args[at:]...), program
}

// noRanks reports whether the flags of train launch, which precede a program, start no rank.
func noRanks(args []string, program bool) bool {
	for i := 0; i < len(args); i++ {
		n := launchFlag(args[i:])
		if n == 0 && program {
			return false
		}
		if name, value, has := strings.Cut(dashed(args[i]), "="); name == "--num-processes" && (has && value == "0" || n == 2 && args[i+1] == "0") {
			return true
		}
		i += max(n-1, 0)
	}
	return false
}

// Run starts the ranks and waits for them. If one fails, it stops the others and names it.
func (c *programCmd) Run(ctx context.Context, out cmdline.Output, diag cmdline.Diagnostics) error {
	found, err := c.configuration()
	if err == nil {
		err = c.settle(found, &c.NumProcesses)
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "heft-launch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := rankCommand(ctx, dir, c.Program, diag)
	if err != nil {
		return err
	}
	return c.start(c.NumProcesses, program, nil, false, out, diag)
}

// start runs program, a command line, as the ranks of this machine and waits for them. processes is
// the number of ranks on all machines. env is added to their environment. Output lines are prefixed
// with the rank, except stdout of train's own commands (own), where only rank 0 prints.
func (c *worldFlags) start(processes int, program, env []string, own bool, out cmdline.Output, diag cmdline.Diagnostics) error {
	token := os.Getenv("HEFT_RUN_TOKEN")
	if token == "" {
		token = rand.Text()
		if c.NumMachines > 1 {
			return cmdline.Misusef("several machines need one secret: set HEFT_RUN_TOKEN on each, for example to %s", token)
		}
	}
	local := processes / c.NumMachines
	if err := finetune.CheckRanks(local); err != nil {
		return misuse(err)
	}
	var ranks []*exec.Cmd
	var lines sync.Mutex
	var copying []*prefixed
	for i := range local {
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Env = append(append(os.Environ(), env...), fmt.Sprint("RANK=", c.MachineRank*local+i), fmt.Sprint("LOCAL_RANK=", i),
			fmt.Sprint("WORLD_SIZE=", processes), fmt.Sprint("LOCAL_WORLD_SIZE=", local),
			"MASTER_ADDR="+c.MainProcessIP, fmt.Sprint("MASTER_PORT=", c.MainProcessPort), "HEFT_RUN_TOKEN="+token)
		if os.Getenv("GOMAXPROCS") == "" {
			cmd.Env = append(cmd.Env, fmt.Sprint("GOMAXPROCS=", max(1, runtime.GOMAXPROCS(0)/local)))
		}
		stdout := &prefixed{to: out, lock: &lines, prefix: fmt.Sprintf("[%d] ", c.MachineRank*local+i)}
		stderr := &prefixed{to: diag, lock: &lines, prefix: stdout.prefix}
		if processes == 1 {
			stderr.prefix = ""
		}
		if processes == 1 || own {
			stdout.prefix = ""
		}
		cmd.Stdout, cmd.Stderr = stdout, stderr
		copying = append(copying, stdout, stderr)
		ranks = append(ranks, cmd)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	err := supervise(signals, ranks, c.MachineRank*local)
	for _, p := range copying {
		p.flush()
	}
	return err
}

// configuration returns Accelerate's configuration, or nil if there is none.
func (c *worldFlags) configuration() (config, error) {
	found, path, err := findConfig(c.File)
	if err == nil && found != nil {
		if err = found.supported(); err != nil {
			err = cmdline.Misusef("%s: %w", path, err)
		}
	}
	return found, err
}

// settle sets the values that the flags leave open. found may be nil.
func (c *worldFlags) settle(found config, processes *int) (err error) {
	if found != nil {
		if c.NumMachines == 0 {
			c.NumMachines = found.number("num_machines")
		}
		if *processes == 0 && c.NprocPerNode == 0 {
			*processes = max(0, found.number("num_processes"))
		}
		if c.MachineRank == 0 {
			c.MachineRank = found.number("machine_rank")
		}
		if c.MainProcessIP == "" {
			c.MainProcessIP = found.text("main_process_ip")
		}
		if c.MainProcessPort == 0 {
			c.MainProcessPort = found.number("main_process_port")
		}
	}
	c.NumMachines = max(c.NumMachines, 1)
	if c.NprocPerNode > 0 {
		*processes = c.NprocPerNode * c.NumMachines
	}
	if *processes == 0 {
		*processes = c.NumMachines
	}
	switch {
	case *processes < 1 || *processes%c.NumMachines != 0:
		return cmdline.Misusef("got --num-processes %d and --num-machines %d, want a multiple of the machines", *processes, c.NumMachines)
	case c.MachineRank < 0 || c.MachineRank >= c.NumMachines:
		return cmdline.Misusef("got --machine-rank %d, want 0 to %d", c.MachineRank, c.NumMachines-1)
	case c.NumMachines > 1 && c.MainProcessIP == "":
		return cmdline.Misusef("got --num-machines %d without --main-process-ip, want the address of machine 0", c.NumMachines)
	}
	if c.MainProcessIP == "" {
		c.MainProcessIP = "127.0.0.1"
	}
	if c.MainProcessPort == 0 {
		c.MainProcessPort = 29500
		if c.NumMachines == 1 {
			c.MainProcessPort, err = tcp.FreePort(c.MainProcessIP)
		}
	}
	return err
}

// rankCommand returns the command line of a rank. It builds Go packages into dir, once for all ranks.
func rankCommand(ctx context.Context, dir string, args []string, diag io.Writer) ([]string, error) {
	if len(args) > 2 && args[0] == "go" && args[1] == "run" && !strings.HasPrefix(args[2], "-") {
		args = args[2:]
	} else if info, err := os.Stat(args[0]); (err != nil || !info.IsDir()) && !strings.HasSuffix(args[0], ".go") {
		path, err := exec.LookPath(args[0])
		if err != nil {
			return nil, notProgram(args[0], err)
		}
		return append([]string{path}, args[1:]...), nil
	} else if err != nil {
		return nil, notProgram(args[0], err)
	}
	bin := filepath.Join(dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, args[0])
	build.Stdout, build.Stderr = diag, diag
	if err := build.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, cmdline.Misusef("got the Go program %s, but there is no go command to build it: install Go, or launch a built program", args[0])
		}
		return nil, fmt.Errorf("building %s failed, as go build says above: %w; want a Go file, or a folder of a main package in a module", args[0], err)
	}
	return append([]string{bin}, args[1:]...), nil
}

// notProgram returns the error for a PROGRAM that cannot be started because of err.
func notProgram(name string, err error) error {
	_, there := os.Stat(name)
	switch {
	case strings.HasSuffix(name, ".py"):
		return cmdline.Misusef("got the Python script %s, want a Go program: use accelerate launch %s, or train launch python %s for a script that reads RANK and WORLD_SIZE", name, name, name)
	case there != nil && (strings.ContainsRune(name, filepath.Separator) || strings.HasSuffix(name, ".go")):
		return cmdline.Misusef("there is no program %s: want a program, a Go file, or a folder of Go files", name)
	case errors.Is(err, fs.ErrPermission):
		return cmdline.Misusef("%s is not executable: run chmod +x %s, or launch a built program", name, name)
	case there == nil:
		return cmdline.Misusef("there is no program %s in $PATH: for the file in this folder, use ./%s", name, name)
	}
	return cmdline.Misusef("there is no program %s in $PATH or in this folder: want a program, a Go file, or a folder of Go files", name)
}

// grace is the time that ranks have to end by themselves after one has failed.
const grace = 3 * time.Second

// supervise runs the ranks until all have ended. The error names the rank that failed first. It
// prefers a rank killed by a signal, because the others fail as a consequence. On the first signal
// the ranks get SIGTERM and may take any time to save. A second signal kills them.
func supervise(signals <-chan os.Signal, ranks []*exec.Cmd, first int) error {
	ended := make(chan rankEnd, len(ranks))
	running := 0
	var failed []rankEnd
	for i, cmd := range ranks {
		if err := cmd.Start(); err != nil {
			failed = append(failed, rankEnd{i, err})
			break
		}
		running++
		go func() { ended <- rankEnd{i, cmd.Wait()} }()
	}
	stop := func(s os.Signal) {
		for _, cmd := range ranks {
			if cmd.Process != nil {
				_ = cmd.Process.Signal(s) // returns an error if the rank has ended
			}
		}
	}
	var stopped syscall.Signal
	ours := false
	var late <-chan time.Time
	if len(failed) > 0 {
		late = time.After(0)
	}
	for running > 0 {
		select {
		case e := <-ended:
			running--
			if e.err != nil && !ours {
				failed = append(failed, e)
				if late == nil {
					late = time.After(grace)
				}
			}
		case <-late:
			ours = true
			stop(os.Kill)
			late = nil
		case s := <-signals:
			if ours {
				stop(os.Kill)
				continue
			}
			ours = true
			stopped, _ = s.(syscall.Signal) // os.Interrupt is one on every system
			stop(syscall.SIGTERM)
		}
	}
	if stopped != 0 {
		return cmdline.Stopped(stopped)
	}
	return blame(failed, first)
}

// rankEnd describes how a rank of this machine ended.
type rankEnd struct {
	rank int
	err  error
}

// blame chooses the rank to name among the failed ones.
func blame(failed []rankEnd, first int) error {
	if len(failed) == 0 {
		return nil
	}
	worst := failed[0]
	for _, e := range failed {
		if x := (*exec.ExitError)(nil); errors.As(e.err, &x) && x.ExitCode() < 0 {
			worst = e
			break
		}
	}
	return fmt.Errorf("rank %d failed: %w", first+worst.rank, worst.err)
}

// prefixed is a writer that writes complete lines, each after a prefix.
type prefixed struct {
	to     io.Writer
	lock   *sync.Mutex
	prefix string
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		n, line, _ := bufio.ScanLines(p.rest, false)
		if n == 0 {
			return len(b), nil
		}
		if err := p.print(line); err != nil {
			return 0, err
		}
		p.rest = p.rest[n:]
	}
}

func (p *prefixed) print(line []byte) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	_, err := fmt.Fprintf(p.to, "%s%s\n", p.prefix, line)
	return err
}

// flush writes a last line without a newline.
func (p *prefixed) flush() {
	if len(p.rest) > 0 {
		_ = p.print(p.rest)
	}
}
