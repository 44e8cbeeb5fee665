// Command _asm compiles the C kernels in c and writes them as Go assembly.
//
//	go -C internal/kernels/_asm run . -out ..
//
// c/gemv/avx2_dot.c becomes gemv/avx2_dot_amd64.s, with its Go declarations beside it.
//
// Each function of a C file is compiled by clang 19 with the calling convention
// preserve_none, linked alone at address zero with the constants it uses behind it, and emitted
// as data words in a TEXT block whose arguments are loaded from the Go frame. Because a
// kernel never moves the stack pointer, its return goes straight to the Go caller and
// the runtime can unwind from any instruction; a function that touches the stack is
// refused. The output is the same for the same compiler, which CI compares.
package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

var (
	avx2   = []string{"-mavx2", "-mfma", "-mf16c"}
	avx512 = []string{"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mbmi2", "-mprefer-vector-width=512"}
	bf16   = append(avx512[:len(avx512):len(avx512)], "-mavx512bf16")
	vnni   = append(avx512[:len(avx512):len(avx512)], "-mavx512vnni")
	vbmi   = append(bf16[:len(bf16):len(bf16)], "-mavx512vbmi")
	amx    = []string{"-mamx-tile", "-mamx-bf16"}
)

// instructions maps a prefix to the instruction sets that C files with that prefix may use. The
// prefix is the part of a file's name before the first underscore.
var instructions = map[string][]string{"avx2": avx2, "avx512": avx512, "avx512bf16": bf16, "avx512vnni": vnni, "avx512vbmi": vbmi, "amx": amx}

// exceptions are files that may use more. The roof of a processor is measured with whatever it has.
var exceptions = map[string][]string{
	"coded/amx_strips":       append(avx512[:len(avx512):len(avx512)], amx...),
	"qgemm/avx512vbmi_rows":  append(vbmi[:len(vbmi):len(vbmi)], "-mavx512vnni"),
	"qgemm/avx512vbmi_words": append(vbmi[:len(vbmi):len(vbmi)], "-mavx512vnni"),
	"roof/avx512_roof":       append(bf16[:len(bf16):len(bf16)], "-mavx512vnni", "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
}

var flags = []string{
	"-O3", "-ffreestanding", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-mno-red-zone",
	"-fno-jump-tables", "-ffunction-sections", "-fdata-sections", "-fomit-frame-pointer", "-fno-math-errno", "-ffp-contract=off",
	"-Wall", "-Werror", "-Wno-unused-function", "-Ic",
}

// registers lists the argument registers of preserve_none, in order.
var registers = []string{"R12", "R13", "R14", "R15", "DI", "SI", "DX", "CX", "R8", "R9", "R11", "AX"}

var (
	signature = regexp.MustCompile(`preserve_none\)\) void (\w+)\(([^)]*)\)`)
	stackUse  = regexp.MustCompile(`.*\t(?:push|pop|call|leave|enter|.*%[er](?:sp|bp)\b).*`)
)

type argument struct {
	name    string
	pointer bool
}

type function struct {
	name string
	args []argument
	code []byte
	// plain is code with no-operations in place of its prefetches; nil where it has none.
	plain []byte
	// near is code that prefetches at a quarter of the distance; nil where it is the same code.
	near []byte
}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "..", "folder of the packages")
	suffix := flag.String("suffix", "-19", "suffix of the names of the clang and LLVM tools")
	only := flag.String("only", "", "compile just this C file, such as gemv/avx2_dot")
	flag.Parse()
	dir, err := os.MkdirTemp("", "kernels")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sources, err := filepath.Glob("c/*/*.c")
	if err != nil {
		log.Fatal(err)
	}
	if err := generateAll(dir, *suffix, *out, *only, sources); err != nil {
		os.RemoveAll(dir)
		log.Fatal(err)
	}
}

// generateAll compiles the C files, as many at once as there are processors.
func generateAll(dir, suffix, out, only string, sources []string) error {
	var files sync.WaitGroup
	failed, turns := make([]error, len(sources)), make(chan struct{}, runtime.NumCPU())
	for i, source := range sources {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(source), "c/"), ".c")
		if only != "" && name != only {
			continue
		}
		files.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			own := filepath.Join(dir, fmt.Sprint(i))
			err := os.Mkdir(own, 0o700)
			if err == nil {
				err = generate(generator{dir: own, suffix: suffix}, out, name)
			}
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", source, err)
			}
		})
	}
	files.Wait()
	return errors.Join(failed...)
}

// generate compiles c/NAME.c. The directory of NAME is the Go package.
func generate(g generator, out, name string) error {
	isa := exceptions[name]
	if isa == nil {
		prefix, _, _ := strings.Cut(filepath.Base(name), "_")
		if isa = instructions[prefix]; isa == nil {
			return fmt.Errorf("no instruction set is called %q", prefix)
		}
	}
	functions, err := g.compile(name, isa)
	if err != nil {
		return err
	}
	return write(out, name, functions)
}

type generator struct{ dir, suffix string }

func (g generator) tool(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name+g.suffix, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %v\n%s", name, err, stderr.Bytes())
	}
	return out, nil
}

// compile returns the functions of one C file in its order.
func (g generator) compile(name string, isa []string) ([]function, error) {
	source, options := filepath.Join("c", name+".c"), append(append([]string{}, flags...), isa...)
	text, err := g.tool("clang", append(options, "-E", "-P", source)...)
	if err != nil {
		return nil, err
	}
	far, err := g.object("o", append(options, "-c", source))
	if err != nil {
		return nil, err
	}
	options = append(options, "-DNEAR")
	nearText, err := g.tool("clang", append(options, "-E", "-P", source)...)
	if err != nil {
		return nil, err
	}
	near := far
	if !bytes.Equal(nearText, text) {
		if near, err = g.object("near", append(options, "-c", source)); err != nil {
			return nil, err
		}
	}
	var functions []function
	for _, m := range signature.FindAllSubmatch(text, -1) {
		f := function{name: string(m[1])}
		for _, a := range strings.Split(string(m[2]), ",") {
			words := strings.FieldsFunc(a, func(r rune) bool { return r == ' ' || r == '*' })
			f.args = append(f.args, argument{words[len(words)-1], strings.Contains(a, "*")})
		}
		if len(f.args) > len(registers) {
			return nil, fmt.Errorf("%s has more than %d arguments", f.name, len(registers))
		}
		if err := g.link(&f, far, near); err != nil {
			return nil, fmt.Errorf("%s: %v", f.name, err)
		}
		functions = append(functions, f)
	}
	return functions, nil
}

// link sets the codes of f, which is in both objects. They may be the same one.
func (g generator) link(f *function, far, near *object) error {
	var prefetches []span
	var err error
	if f.code, prefetches, err = g.code(far, f.name); err != nil || len(prefetches) == 0 || strings.HasPrefix(f.name, "amx") {
		return err
	}
	f.plain = without(f.code, prefetches)
	if near == far {
		return nil
	}
	if f.near, _, err = g.code(near, f.name); bytes.Equal(f.near, f.code) {
		f.near = nil
	}
	return err
}

// An object is a compiled C file.
type object struct {
	path     string
	listings map[string]string // of functions, by their names
}

// object compiles a C file.
func (g generator) object(name string, options []string) (*object, error) {
	o := &object{path: filepath.Join(g.dir, name), listings: map[string]string{}}
	if _, err := g.tool("clang", append(options, "-o", o.path)...); err != nil {
		return nil, err
	}
	listing, err := g.tool("llvm-objdump", "-d", "--no-show-raw-insn", o.path)
	if err != nil {
		return nil, err
	}
	for _, section := range strings.Split(string(listing), "Disassembly of section .text.")[1:] {
		name, code, _ := strings.Cut(section, ":\n")
		o.listings[name] = code
	}
	return o, nil
}

// code returns the code of one function followed by its constants, and the places of its
// prefetches.
func (g generator) code(o *object, name string) ([]byte, []span, error) {
	listing := o.listings[name]
	if bad := stackUse.FindAllString(listing, 4); bad != nil {
		return nil, nil, fmt.Errorf("it uses the stack:\n%s", strings.Join(bad, "\n"))
	}
	if !strings.Contains(listing, "ret") {
		return nil, nil, errors.New("no code was found")
	}
	script, linked := filepath.Join(g.dir, "ld"), filepath.Join(g.dir, "elf")
	layout := "SECTIONS { . = 0; .text : { *(.text." + name + ") . = ALIGN(64); *(.rodata*) } /DISCARD/ : { *(.text.*) *(.comment) *(.note*) *(.llvm*) *(.eh_frame*) } }"
	if err := os.WriteFile(script, []byte(layout), 0o600); err != nil {
		return nil, nil, err
	}
	if _, err := g.tool("ld.lld", "--gc-sections", "-T", script, "-e", name, "-o", linked, o.path); err != nil {
		return nil, nil, err
	}
	file, err := elf.Open(linked)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	text := file.Section(".text")
	if text == nil {
		return nil, nil, errors.New("it was linked without code")
	}
	code, err := text.Data()
	if err != nil {
		return nil, nil, err
	}
	prefetches, err := prefetchesOf(listing)
	return code, prefetches, err
}

// write writes NAME_amd64.s and NAME_amd64.go. Their package is the directory of NAME.
func write(out, name string, functions []function) error {
	var asm, stubs bytes.Buffer
	header := "// Code generated by _asm from " + name + ".c; DO NOT EDIT.\n\n//go:build !purego\n\n"
	asm.WriteString(header + "#include \"textflag.h\"\n\n" + quadsMacro + "\n")
	stubs.WriteString(header + "package " + filepath.Base(filepath.Dir(name)) + "\n\nimport ")
	if slices.ContainsFunc(functions, func(f function) bool { return f.plain != nil }) {
		stubs.WriteString("(\n\t\"unsafe\"\n\n\t_ \"github.com/heftai/heft/internal/kernels/fetch\" // its flags\n)\n")
	} else {
		stubs.WriteString("\"unsafe\"\n")
	}
	for _, f := range functions {
		emit(&asm, &stubs, f)
	}
	if err := os.WriteFile(filepath.Join(out, name+"_amd64.s"), asm.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+"_amd64.go"), stubs.Bytes(), 0o644)
}

func emit(asm, stubs *bytes.Buffer, f function) {
	var params []string
	for _, a := range f.args {
		kind := "int64"
		if a.pointer {
			kind = "unsafe.Pointer"
		}
		params = append(params, a.name+" "+kind)
	}
	prototype := fmt.Sprintf("func %s(%s)\n", f.name, strings.Join(params, ", "))
	fmt.Fprintf(stubs, "\n//go:noescape\n%s", prototype)
	fmt.Fprintf(asm, "\n// %sTEXT ·%s(SB), NOSPLIT|NOFRAME, $0-%d\n", prototype, f.name, 8*len(f.args))
	for i, a := range f.args {
		fmt.Fprintf(asm, "\tMOVQ %s+%d(FP), %s\n", a.name, 8*i, registers[i])
	}
	if f.plain == nil {
		emitCode(asm, f.code)
		return
	}
	// Other codes are functions of their own: the assembler may loop over a jump across PCALIGN.
	flag, other := fmt.Sprintf("%s+%d(SB)", prefetchFlags, roleOf(f.name)), func(name string, code []byte) {
		fmt.Fprintf(asm, "\nTEXT %s%s<>(SB), NOSPLIT|NOFRAME, $0-%d\n", f.name, name, 8*len(f.args))
		emitCode(asm, code)
	}
	if f.near == nil {
		fmt.Fprintf(asm, "\tCMPB %s, $%d\n\tJNE 2(PC)\n\tJMP %sPlain<>(SB)\n", flag, plainFlag, f.name)
		emitCode(asm, f.code)
		other("Plain", f.plain)
		return
	}
	fmt.Fprintf(asm, "\tCMPB %s, $0\n\tJEQ 5(PC)\n\tCMPB %s, $%d\n\tJNE 2(PC)\n\tJMP %sPlain<>(SB)\n\tJMP %sNear<>(SB)\n", flag, flag, plainFlag, f.name, f.name)
	emitCode(asm, f.code)
	other("Plain", f.plain)
	other("Near", f.near)
}

// quadsMacro defines Q of eight words of code: with an instruction for each, files were a third larger.
const quadsMacro = "#define Q(a, b, c, d, e, f, g, h) QUAD $a; QUAD $b; QUAD $c; QUAD $d; QUAD $e; QUAD $f; QUAD $g; QUAD $h\n"

func emitCode(asm *bytes.Buffer, code []byte) {
	asm.WriteString("\tPCALIGN $64\n")
	for len(code)%8 != 0 {
		code = append(code, 0xcc)
	}
	for ; len(code) >= 64; code = code[64:] {
		words := make([]string, 8)
		for i := range words {
			words[i] = fmt.Sprintf("%#x", binary.LittleEndian.Uint64(code[8*i:]))
		}
		fmt.Fprintf(asm, "\tQ(%s)\n", strings.Join(words, ","))
	}
	for ; len(code) > 0; code = code[8:] {
		fmt.Fprintf(asm, "\tQUAD $%#x\n", binary.LittleEndian.Uint64(code))
	}
	asm.WriteString("\tRET\n")
}
