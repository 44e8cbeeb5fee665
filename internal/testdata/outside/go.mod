module example.org/outside

go 1.26.0

require github.com/heftai/heft v0.0.0

replace github.com/heftai/heft => ../../..
