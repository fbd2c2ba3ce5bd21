# In new namespaces: `ROOM PLACE... -- COMMAND` shows the places, read only, in a file system in memory, and goes there
# without any right. The command begins with options of setpriv.
set -e
room=$1
shift
mount -t tmpfs -o size=1g,mode=755 fence "$room"
while [ "$1" != -- ]; do
    mkdir -p "$room${1%/*}"
    if [ -L "$1" ]; then
        cp -P "$1" "$room$1"
    else
        if [ -d "$1" ]; then mkdir -p "$room$1"; else touch "$room$1"; fi
        mount --rbind "$1" "$room$1"
        case "$1" in /dev/* | /sys/*) ;; *) mount -o remount,bind,ro,nosuid,nodev "$room$1" ;; esac
    fi
    shift
done
shift
mkdir -p "$room/proc" "$room/tmp" "$room/dev/shm" "$room$room"
mount -t proc proc "$room/proc"
chmod 777 "$room/tmp" "$room/dev/shm" "$room$room"
exec unshare --root="$room" --wd="$room" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
