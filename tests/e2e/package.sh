# The Debian packages of `cpack -G DEB`: their dependencies, their contents, and that the command and a program run from
# them.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
for tool in cpack dpkg-deb dpkg-shlibdeps file pkg-config; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
timeout 300 cpack -G DEB --config "$BUILD_DIR/CPackConfig.cmake" -B "$work/packages" >cpack.out 2>&1 || { cat cpack.out; fail "cpack"; }

# Without the tool that finds dependencies packages would have none: cpack refuses.
mkdir empty
! timeout 180 env PATH="$PWD/empty" "$(command -v cpack)" -G DEB --config "$BUILD_DIR/CPackConfig.cmake" -B "$work/refused" \
    -D CMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF >refused.out 2>&1 || fail "cpack made packages without dpkg-shlibdeps"
grep -q 'no dpkg-shlibdeps here' refused.out || { cat refused.out; fail "cpack does not say that dpkg-shlibdeps is absent"; }

version=$("$TUTTI" --version | sed -n 's/^tutti //p')
architecture=$(dpkg --print-architecture)
for package in tutti libtutti-dev; do
    file="packages/${package}_${version}_$architecture.deb"
    [ -e "$file" ] || { ls packages; fail "there is no $file"; }
    dpkg-deb -x "$file" root
    [ -e "root/usr/share/doc/$package/copyright" ] || fail "$package has no licence"
done
depends=$(dpkg-deb -f "packages/tutti_${version}_$architecture.deb" Depends)
for library in libc6 libsodium libxxhash libjansson zlib1g; do
    case "$depends" in *"$library"*) ;; *) fail "tutti depends on \"$depends\", without $library" ;; esac
done
! [[ "$depends" =~ mpi|cuda|libstdc ]] || fail "tutti depends on \"$depends\": the modules' needs are not the command's"
for kind in openmpi mpich; do # one MPI's module does not bring the other MPI
    [ -e "$BUILD_DIR"/lib*/tutti/libtutti_mpi_$kind.so ] || continue
    depends_too=$(dpkg-deb -f packages/tutti-mpi-${kind}_*.deb Depends)
    case $kind:$depends_too in
    *openmpi*mpich* | *mpich*openmpi*) fail "tutti-mpi-$kind depends on \"$depends_too\"" ;;
    openmpi:*libopenmpi* | mpich:*libmpich*) ;;
    *) fail "tutti-mpi-$kind depends on \"$depends_too\", without its MPI" ;;
    esac
done
[ "$(dpkg-deb -f "packages/libtutti-dev_${version}_$architecture.deb" Depends)" = "tutti (= $version), libc6-dev" ] ||
    fail "libtutti-dev does not depend on tutti of the same version"
[ ! -e root/usr/share/tutti ] || fail "a package has the list that only make uninstall reads"
[ -e root/usr/share/zsh/vendor-completions/_tutti ] || fail "zsh of Debian does not find the completion"
dpkg-deb -e "packages/tutti_${version}_$architecture.deb" control
grep -q ldconfig control/postinst control/triggers 2>/dev/null || fail "the loader is not told of the libraries"

(cd root && usr/bin/tutti train --epochs 1 --max-steps 5 --progress quiet --run-dir ../run) || fail "the packaged command does not train"
export PKG_CONFIG_PATH=$(dirname "$(find root -name tutti.pc)")
timeout 180 "$c" "$SOURCE_DIR/examples/bring_your_own_gradients.c" $(pkg-config --cflags --libs tutti) -o program >compile.out 2>&1 ||
    { cat compile.out; fail "to compile with the packaged pkg-config file"; }
LD_LIBRARY_PATH=$(dirname "$(find root -name libtutti.so)") timeout 180 ./program >program.out 2>&1 || { cat program.out; fail "the program"; }
echo "the packages have what they need: $depends"
