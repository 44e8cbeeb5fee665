// Package topology tells which processors this process may use, and where its threads go.
//
// Its nouns: a [CPU] is a processor of the system with the core and the memory node that it
// belongs to; a [Node] is memory that some processors have near; a [Machine] is the
// processors that the process may run on and the nodes, with the time that its control groups
// leave it. The flow: [Here] looks at this machine once, [Read] at any tree of files that
// looks like one; [Machine.Threads] is how many threads compute unless the user says
// otherwise, [Machine.Places] which processor each of them is for, [Machine.Near] whose work
// it helps with first, and [Machine.Home] where what it reads belongs.
//
// Two threads of one core share what multiplies and what brings data, so one of them is
// enough. It knows nothing of what the threads do.
package topology
