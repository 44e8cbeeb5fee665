// Built by a test of internal/archtest, which adds the requirements and checksums of Heft.
module example.org/outside

go 1.26.0

require github.com/heftai/heft v0.0.0

replace github.com/heftai/heft => ../..
