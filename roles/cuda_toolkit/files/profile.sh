# Written by clusterctl: the compiler of the default CUDA toolkit.
if [ -d /usr/local/cuda/bin ]; then
    case ":$PATH:" in
    *:/usr/local/cuda/bin:*) ;;
    *) PATH=$PATH:/usr/local/cuda/bin ;;
    esac
fi
