# SPDX-License-Identifier: MIT
# The few commands a visitor needs; everything else is meson's (meson.build).
#
#   make            build into build/
#   make demo       install what is missing, build, run the demo
#   make check      install what is missing for the tests, build, run them
#   make check-vm   the same in virtual machines with arm64 kernels; check-vm-all: every case
#   make vm-kernel  build their kernel, where none is at hand prebuilt (10 minutes)
#   make compare    measure beside other software, in minutes: a table, build/compare.json
#                   (COMPARE_OPTIONS=--help); compare-check: fail where it became worse;
#                   compare-baseline, compare-pictures: of the last make compare
#   make chaos      kill daemon and clients all the time for SECONDS=60, count what became of it
#   make fuzz       fuzz messages, rings, batches, configuration: each for SECONDS=60
#   make deps       only install what is missing
#   make install    PREFIX=/usr/local DESTDIR=
#   make clean
#
# Packages are installed by scripts/install-deps.sh, which tells when it asks and when it does not.

BUILD = build
MESON = meson
PREFIX =
DESTDIR =
MESON_OPTIONS =
TEST_OPTIONS =
DEMO_OPTIONS =
COMPARE_OPTIONS =
TARGETS =
SECONDS = 60

setup_options = $(if $(PREFIX),--prefix=$(PREFIX)) $(MESON_OPTIONS)

all: compile

# The packages that were missing at the last configuration are remembered: when one of them has
# come meanwhile, meson must look again for what it had not found.
configure:
	@command -v $(MESON) >/dev/null || { \
		echo "$(MESON) is not installed; 'make deps' installs all that is needed" >&2; exit 1; }
	@mkdir -p $(BUILD)
	@scripts/install-deps.sh --missing test >$(BUILD)/missing-packages.new
	@if [ ! -e $(BUILD)/build.ninja ]; then \
		$(MESON) setup $(BUILD) $(setup_options) || { \
			echo "'make deps' installs what is needed" >&2; exit 1; }; \
	elif [ -n "$(strip $(setup_options))" ]; then \
		$(MESON) configure $(BUILD) $(setup_options); \
	fi
	@if [ -e $(BUILD)/missing-packages ] && \
	    ! cmp -s $(BUILD)/missing-packages $(BUILD)/missing-packages.new; then \
		$(MESON) setup --reconfigure $(BUILD); \
	fi
	@mv $(BUILD)/missing-packages.new $(BUILD)/missing-packages

compile: configure
	$(MESON) compile -C $(BUILD) $(TARGETS)

deps:
	scripts/install-deps.sh test

build-deps:
	@scripts/install-deps.sh build

test-deps:
	@scripts/install-deps.sh test

# Only what the demo runs: the tests are most of the build.
demo_targets = dmasync-demo:executable daemon/dmasyncd:executable client/ctl/dmasyncctl:executable

demo: build-deps
	@$(MAKE) --no-print-directory compile TARGETS='$(demo_targets)'
	$(BUILD)/client/examples/dmasync-demo $(DEMO_OPTIONS)

check: test-deps
	@$(MAKE) --no-print-directory compile
	$(MESON) test -C $(BUILD) --no-rebuild --print-errorlogs $(TEST_OPTIONS)

chaos_targets = chaos:executable daemon/dmasyncd:executable

chaos: test-deps
	@$(MAKE) --no-print-directory compile TARGETS='$(chaos_targets)'
	CHAOS_SECONDS=$(SECONDS) $(BUILD)/tests/chaos/chaos

fuzz: test-deps
	tests/fuzz/run.sh $(SECONDS) $(TARGETS)

check-vm check-vm-all:
	@scripts/install-deps.sh vm
	tests/vm/check.sh $(if $(filter %-all,$@),--all) $(CASES)

vm-kernel:
	@scripts/install-deps.sh vm-kernel
	tests/vm/build-kernel.sh

# An idle machine is the user's business; docs/compare.md says what else.
compare_targets = dmasync-compare:executable daemon/dmasyncd:executable
compare_check = python3 -B tests/compare/check.py
compare_json = $(BUILD)/compare.json
baseline = tests/compare/baseline.json

compare: build-deps
	@scripts/install-deps.sh compare || echo "going on without them: their rows will say so" >&2
	@$(MAKE) --no-print-directory compile TARGETS='$(compare_targets)'
	$(BUILD)/tests/compare/dmasync-compare --json=$(compare_json) $(COMPARE_OPTIONS)

compare-check: compare
	$(compare_check) $(compare_json) $(baseline)

compare-baseline:
	$(compare_check) --record $(compare_json) $(baseline)

compare-pictures:
	@scripts/install-deps.sh compare
	python3 -B tests/compare/draw.py $(compare_json) docs/pictures

install: compile
	DESTDIR="$(DESTDIR)" $(MESON) install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD)

.PHONY: all chaos fuzz configure compile deps build-deps test-deps demo check check-vm check-vm-all vm-kernel \
	compare compare-check compare-baseline compare-pictures install clean
