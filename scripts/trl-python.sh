# The Python with TRL and PEFT that check-trl.sh and check-trainer.sh share, to be sourced. Sets python, and makes
# it on top of the Python of .ci/run, whose torch and transformers it uses, if it is not there yet.
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}
base=${HEFT_PYTHON:-$tools/venv/bin/python} python=$tools/trl/bin/python
if ! "$python" -c 'import trl, peft, datasets' 2>/dev/null; then
	"$base" -m venv "$tools/trl"
	# Packages of the Python that .ci/run installs are found behind those of this one.
	"$base" -c 'import site; print(site.getsitepackages()[0])' >"$("$python" -c 'import site; print(site.getsitepackages()[0])')/base.pth"
	"$python" -m pip install -q --no-cache-dir trl==1.16.0 peft==0.21.2 datasets
fi
